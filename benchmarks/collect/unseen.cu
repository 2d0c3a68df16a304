// More pairs of CUDA kernels, as in diagnosed.cu, but measured after the reasons of `roof kernels` were written: other
// work, other sizes, milder faults. Build and use: see diagnosed.cu (no cuBLAS).
#include "pairs.cuh"

const int ROWS = 16384, COLUMNS = 4096;  // a matrix of 256 MiB
const size_t N = (size_t)ROWS * COLUMNS;

// The sums of the rows: a thread a row reads down 32 rows at once; cured: a warp a row.
__global__ void row_sums_uncoalesced__sick(const float* in, float* out) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < COLUMNS; k++) sum += in[(size_t)row * COLUMNS + k];
  out[row] = sum;
}
__global__ void row_sums_uncoalesced__cured(const float* in, float* out) {
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  float sum = 0;
  for (int k = lane; k < COLUMNS; k += 32) sum += in[(size_t)row * COLUMNS + k];
  for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
  if (!lane) out[row] = sum;
}

// Particles of four floats of which two are needed; cured: two arrays.
struct Particle { float x, y, z, mass; };
__global__ void particles_partial__sick(const Particle* in, float* out, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i].x * in[i].mass;
}
__global__ void particles_partial__cured(const float* x, const float* mass, float* out, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] * mass[i];
}

// A transposition: stores go down a column; cured: through shared memory.
__global__ void transpose_uncoalesced__sick(const float* in, float* out) {
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
  out[(size_t)x * ROWS + y] = in[(size_t)y * COLUMNS + x];
}
template <int PAD> __device__ void tiled_transpose(const float* in, float* out) {
  __shared__ float tile[32][32 + PAD];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = in[(size_t)(y + k) * COLUMNS + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x;
  y = blockIdx.x * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8) out[(size_t)(y + k) * ROWS + x] = tile[threadIdx.x][threadIdx.y + k];
}
__global__ void transpose_uncoalesced__cured(const float* in, float* out) { tiled_transpose<1>(in, out); }
__global__ void transpose_bank_conflicts__sick(const float* in, float* out) { tiled_transpose<0>(in, out); }
__global__ void transpose_bank_conflicts__cured(const float* in, float* out) { tiled_transpose<1>(in, out); }

// A stencil of five points: constants in double precision, and in single precision.
template <typename T> __device__ void stencil(const float* in, float* out) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y + 1;
  if (x < 1 || x >= COLUMNS - 1) return;
  size_t i = (size_t)y * COLUMNS + x;
  T sum = T(0.5) * in[i] + T(0.125) * (T(in[i - 1]) + in[i + 1] + in[i - COLUMNS] + in[i + COLUMNS]);
  for (int k = 0; k < 12; k++) sum = sum * T(0.99) + T(0.01);
  out[i] = float(sum);
}
__global__ void stencil_fp64__sick(const float* in, float* out) { stencil<double>(in, out); }
__global__ void stencil_fp64__cured(const float* in, float* out) { stencil<float>(in, out); }

// A softmax of rows: a block a row, of 40 rows only; cured: eight blocks a row share the sum through atomics.
__global__ void softmax_few_blocks__sick(const float* in, float* sums, int columns) {
  float sum = 0;
  for (int k = threadIdx.x; k < columns; k += blockDim.x) sum += __expf(in[(size_t)blockIdx.x * columns + k]);
  for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(sums + blockIdx.x, sum);
}
__global__ void softmax_few_blocks__cured(const float* in, float* sums, int columns) {
  float sum = 0;
  int share = columns / gridDim.y, first = blockIdx.y * share;
  for (int k = threadIdx.x; k < share; k += blockDim.x) sum += __expf(in[(size_t)blockIdx.x * columns + first + k]);
  for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(sums + blockIdx.x, sum);
}

// A dot product with one load in flight a thread: half the warps fit beside 100 KiB of shared memory a block.
extern __shared__ float reserved[];
__device__ void dot(const float* a, const float* b, float* out, size_t n) {
  float sum = 0;
  size_t stride = (size_t)gridDim.x * blockDim.x;
#pragma unroll 1
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += stride) sum += a[i] * b[i];
  for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(out + blockIdx.x % 256, sum);
}
__global__ void dot_shared_memory__sick(const float* a, const float* b, float* out, size_t n, int never) {
  if (never) reserved[threadIdx.x] = 1;
  dot(a, b, out, n);
}
__global__ void dot_shared_memory__cured(const float* a, const float* b, float* out, size_t n, int never) {
  if (never) out[0] = 1;
  dot(a, b, out, n);
}

// The same with 128 registers a thread for a branch that is never taken.
__global__ void __launch_bounds__(512, 1) dot_registers__sick(
    const float* a, const float* b, float* out, size_t n, int never) {
  if (never) {
    float values[96];
#pragma unroll
    for (int k = 0; k < 96; k++) values[k] = a[threadIdx.x * 96 + k];
    for (int round = 0; round < never; round++)
#pragma unroll
      for (int k = 0; k < 96; k++) values[k] = values[k] * values[(k + 5) % 96] + values[(k + 17) % 96];
#pragma unroll
    for (int k = 0; k < 96; k++) out[threadIdx.x * 96 + k] = values[k];
    return;
  }
  dot(a, b, out, n);
}
__global__ void __launch_bounds__(512) dot_registers__cured(
    const float* a, const float* b, float* out, size_t n, int never) {
  if (never) return;
  dot(a, b, out, n);
}

// Even threads take one path and odd ones another; cured: even and odd warps.
__device__ float long_path(float x, float factor) {
  for (int k = 0; k < 256; k++) x = x * factor + 0.25f;
  return x;
}
__device__ void two_paths(const float* in, float* out, size_t n, int which) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i >= n) return;
  float x = in[i];
  if (which % 2) x = long_path(x, 0.999f); else x = long_path(x, 1.001f) * 2;
  out[i] = x;
}
__global__ void two_paths_divergence__sick(const float* in, float* out, size_t n) { two_paths(in, out, n, threadIdx.x); }
__global__ void two_paths_divergence__cured(const float* in, float* out, size_t n) {
  two_paths(in, out, n, threadIdx.x / 32);
}

// A sum of all values in which every thread adds to one counter; cured: a warp adds first.
__global__ void sum_atomics__sick(const float* in, float* out, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(out + blockIdx.x % 4, in[i]);
}
__global__ void sum_atomics__cured(const float* in, float* out, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  float sum = i < n ? in[i] : 0;
  for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
  __shared__ float part[32];
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int k = 1; k < blockDim.x / 32; k++) sum += part[k];
    atomicAdd(out + blockIdx.x % 4096, sum);
  }
}

// A filter whose 24 registers a thread are too few, so that values spill; cured: as many as it needs.
__device__ void filter(const float* in, float* out, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i + 64 > n) return;
  float window[32];
#pragma unroll
  for (int k = 0; k < 32; k++) window[k] = in[i + k];
#pragma unroll 1
  for (int round = 0; round < 8; round++)
#pragma unroll
    for (int k = 0; k < 32; k++) window[k] = window[k] * 0.9f + window[(k + 13) % 32] * 0.1f;
  float sum = 0;
#pragma unroll
  for (int k = 0; k < 32; k++) sum += window[k] * window[31 - k];
  out[i] = sum;
}
__global__ void __maxnreg__(24) filter_spills__sick(const float* in, float* out, size_t n) { filter(in, out, n); }
__global__ void filter_spills__cured(const float* in, float* out, size_t n) { filter(in, out, n); }

// FMAs in registers. Blocks that leave a part of a wave; cured: the same work in one full wave.
__device__ float eight_fmas(int rounds) {
  float sum[8];
  for (int k = 0; k < 8; k++) sum[k] = threadIdx.x + k;
#pragma unroll 4
  for (int r = 0; r < rounds; r++)
#pragma unroll
    for (int k = 0; k < 8; k++) sum[k] = sum[k] * 0.999f + 0.5f;
  float all = 0;
  for (int k = 0; k < 8; k++) all += sum[k];
  return all;
}
__global__ void __launch_bounds__(256) gemm_tail__sick(const float* a, float* out, int rounds) {
  out[blockIdx.x * 256 + threadIdx.x] = eight_fmas(rounds) + a[threadIdx.x];
}
__global__ void __launch_bounds__(256) gemm_tail__cured(const float* a, float* out, int rounds) {
  out[blockIdx.x * 256 + threadIdx.x] = eight_fmas(rounds) + a[threadIdx.x];
}

// No fault: triad, and FMAs in registers.
__global__ void triad__healthy(const float4* a, const float4* b, float4* out, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 x = a[i], y = b[i];
  out[i] = make_float4(x.x + 2 * y.x, x.y + 2 * y.y, x.z + 2 * y.z, x.w + 2 * y.w);
}
__global__ void fmas__healthy(float* out, int rounds) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = eight_fmas(rounds);
}

__global__ void fill(float* values, size_t n) {  // uniform numbers in [0, 1)
  size_t stride = (size_t)gridDim.x * blockDim.x;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += stride)
    values[i] = (unsigned)(i * 2654435761u) * 0x1p-32f;
}

int main(int argc, char** argv) {
  bool once = argc > 1 && !strcmp(argv[1], "once");
  float *in, *wide, *out, *flush;
  CHECK(cudaMalloc(&in, N * 4)); CHECK(cudaMalloc(&out, N * 4)); CHECK(cudaMalloc(&flush, N * 4));
  CHECK(cudaMalloc(&wide, N * 4 * 4));
  fill<<<1024, 256>>>(in, N);
  fill<<<1024, 256>>>(wide, 4 * N);
  CHECK(cudaMemset(out, 0, N * 4));
  cudaDeviceProp device;
  CHECK(cudaGetDeviceProperties(&device, 0));
  int sms = device.multiProcessorCount, resident = 0, reserve = 100 << 10;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, gemm_tail__sick, 256, 0));
  int wave = sms * resident;
  CHECK(cudaFuncSetAttribute(dot_shared_memory__sick, cudaFuncAttributeMaxDynamicSharedMemorySize, reserve));
  dim3 tiles(COLUMNS / 32, ROWS / 32), lines(COLUMNS / 256, ROWS - 2);
  int blocks = N / 256;
  std::vector<Case> cases = {
    {"row_sums_uncoalesced__sick", [&] { row_sums_uncoalesced__sick<<<ROWS / 64, 64>>>(in, out); }},
    {"row_sums_uncoalesced__cured", [&] { row_sums_uncoalesced__cured<<<ROWS / 8, 256>>>(in, out); }},
    {"particles_partial__sick", [&] { particles_partial__sick<<<blocks, 256>>>((Particle*)wide, out, N); }},
    {"particles_partial__cured", [&] { particles_partial__cured<<<blocks, 256>>>(wide, wide + N, out, N); }},
    {"transpose_uncoalesced__sick",
      [&] { transpose_uncoalesced__sick<<<dim3(COLUMNS / 32, ROWS / 8), dim3(32, 8)>>>(in, out); }},
    {"transpose_uncoalesced__cured", [&] { transpose_uncoalesced__cured<<<tiles, dim3(32, 8)>>>(in, out); }},
    {"transpose_bank_conflicts__sick", [&] { transpose_bank_conflicts__sick<<<tiles, dim3(32, 8)>>>(in, out); }},
    {"transpose_bank_conflicts__cured", [&] { transpose_bank_conflicts__cured<<<tiles, dim3(32, 8)>>>(in, out); }},
    {"stencil_fp64__sick", [&] { stencil_fp64__sick<<<lines, 256>>>(in, out); }},
    {"stencil_fp64__cured", [&] { stencil_fp64__cured<<<lines, 256>>>(in, out); }},
    {"softmax_few_blocks__sick", [&] { softmax_few_blocks__sick<<<40, 1024>>>(in, out, 1 << 20); }},
    {"softmax_few_blocks__cured", [&] { softmax_few_blocks__cured<<<dim3(40, 8), 1024>>>(in, out, 1 << 20); }},
    {"dot_shared_memory__sick", [&] { dot_shared_memory__sick<<<sms * 8, 256, reserve>>>(in, wide, out, N, 0); }},
    {"dot_shared_memory__cured", [&] { dot_shared_memory__cured<<<sms * 8, 256>>>(in, wide, out, N, 0); }},
    {"dot_registers__sick", [&] { dot_registers__sick<<<sms * 4, 512>>>(in, wide, out, N, 0); }},
    {"dot_registers__cured", [&] { dot_registers__cured<<<sms * 4, 512>>>(in, wide, out, N, 0); }},
    {"two_paths_divergence__sick", [&] { two_paths_divergence__sick<<<blocks, 256>>>(in, out, N); }},
    {"two_paths_divergence__cured", [&] { two_paths_divergence__cured<<<blocks, 256>>>(in, out, N); }},
    {"sum_atomics__sick", [&] { sum_atomics__sick<<<blocks / 4, 256>>>(in, out, N / 4); }},
    {"sum_atomics__cured", [&] { sum_atomics__cured<<<blocks / 4, 256>>>(in, out, N / 4); }},
    {"filter_spills__sick", [&] { filter_spills__sick<<<blocks, 256>>>(in, out, N); }},
    {"filter_spills__cured", [&] { filter_spills__cured<<<blocks, 256>>>(in, out, N); }},
    {"gemm_tail__sick", [&] { gemm_tail__sick<<<wave + wave / 8, 256>>>(in, out, 20000); }},
    {"gemm_tail__cured", [&] { gemm_tail__cured<<<wave, 256>>>(in, out, 20000 + 20000 / 8); }},
    {"triad__healthy", [&] { triad__healthy<<<blocks / 4, 256>>>((float4*)in, (float4*)wide, (float4*)out, N / 4); }},
    {"fmas__healthy", [&] { fmas__healthy<<<sms * 64, 256>>>(out, 4000); }},
  };
  run_all(cases, once, flush, N * 4);
}
