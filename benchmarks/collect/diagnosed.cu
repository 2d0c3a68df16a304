// Pairs of CUDA kernels that do the same work: DISEASE__sick has one known fault, DISEASE__cured has not.
//
// Build: nvcc -O3 -arch=native diagnosed.cu -o diagnosed -lcublas. What the program prints: pairs.cuh.
#include <cublas_v2.h>
#include <cuda_fp16.h>
#include "pairs.cuh"

const size_t N = 1 << 26;  // floats of an array: 256 MiB, five times an H100's L2 cache

// Every thread of a warp reads another sector: 32 sectors a request; cured: 4.
__global__ void uncoalesced__sick(const float* in, float* out, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x, rows = n / 4096;
  if (i < n) out[i] = in[(i % rows) * 4096 + i / rows];
}
__global__ void uncoalesced__cured(const float* in, float* out, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i];
}

// One float of each structure of eight: an eighth of each sector is used; cured: an array of its own.
__global__ void partial_sectors__sick(const float* in, float* out, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[8 * i];
}
__global__ void partial_sectors__cured(const float* in, float* out, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i];
}

// A transposition through shared memory, 50 times over so that shared memory and not DRAM is the limit.
template <int PAD> __device__ void transpose(const float* in, float* out, int side) {
  __shared__ float tile[32][32 + PAD];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  float value = in[(size_t)y * side + x];
  for (int round = 0; round < 50; round++) {
    tile[threadIdx.y][threadIdx.x] = value;
    __syncthreads();
    value = tile[threadIdx.x][threadIdx.y] + 1.0f;
    __syncthreads();
  }
  out[(size_t)(blockIdx.x * 32 + threadIdx.y) * side + blockIdx.y * 32 + threadIdx.x] = value;
}
__global__ void bank_conflicts__sick(const float* in, float* out, int side) { transpose<0>(in, out, side); }
__global__ void bank_conflicts__cured(const float* in, float* out, int side) { transpose<1>(in, out, side); }

// A copy with one load in flight a thread. The branch is never taken, but its registers are reserved for the kernel.
__device__ void copy_one_by_one(const float* in, float* out, size_t n) {
  size_t stride = (size_t)gridDim.x * blockDim.x;
#pragma unroll 1
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += stride) out[i] = in[i] * 2.0f;
}
__global__ void __launch_bounds__(256, 1) occupancy_registers__sick(const float* in, float* out, size_t n, int never) {
  if (never) {
    float values[200];
#pragma unroll
    for (int k = 0; k < 200; k++) values[k] = in[threadIdx.x * 200 + k];
    for (int round = 0; round < never; round++)
#pragma unroll
      for (int k = 0; k < 200; k++) values[k] = values[k] * values[(k + 7) % 200] + values[(k + 31) % 200];
#pragma unroll
    for (int k = 0; k < 200; k++) out[threadIdx.x * 200 + k] = values[k];
    return;
  }
  copy_one_by_one(in, out, n);
}
__global__ void __launch_bounds__(256) occupancy_registers__cured(const float* in, float* out, size_t n, int never) {
  if (never) return;
  copy_one_by_one(in, out, n);
}
extern __shared__ float reserved[];
__global__ void occupancy_shared_memory__sick(const float* in, float* out, size_t n, int never) {
  if (never) reserved[threadIdx.x] = 1;
  copy_one_by_one(in, out, n);
}
__global__ void occupancy_shared_memory__cured(const float* in, float* out, size_t n, int never) {
  if (never) out[0] = 1;
  copy_one_by_one(in, out, n);
}
__global__ void occupancy_block_size__sick(const float* in, float* out, size_t n) { copy_one_by_one(in, out, n); }
__global__ void occupancy_block_size__cured(const float* in, float* out, size_t n) { copy_one_by_one(in, out, n); }

// The same sum with one block, with a block on half the SMs, and with eight blocks on each SM.
__device__ void grid_stride_sum(const float* in, float* out, size_t n) {
  float sum = 0;
  size_t stride = (size_t)gridDim.x * blockDim.x;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += stride) sum += in[i];
  for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(out + blockIdx.x % 64, sum);
}
__global__ void one_sm__sick(const float* in, float* out, size_t n) { grid_stride_sum(in, out, n); }
__global__ void one_sm__cured(const float* in, float* out, size_t n) { grid_stride_sum(in, out, n); }
__global__ void few_blocks__sick(const float* in, float* out, size_t n) { grid_stride_sum(in, out, n); }
__global__ void few_blocks__cured(const float* in, float* out, size_t n) { grid_stride_sum(in, out, n); }

// FMAs of one block of 1024 threads: one block more than fills two waves costs a third wave.
__device__ void fmas(float* out, int rounds) {
  float a = threadIdx.x, b = a + 1, c = a + 2, d = a + 3;
  for (int i = 0; i < rounds; i++) {
    a = a * 1.0001f + 0.5f; b = b * 1.0001f + 0.5f; c = c * 1.0001f + 0.5f; d = d * 1.0001f + 0.5f;
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = a + b + c + d;
}
__global__ void __launch_bounds__(1024) tail__sick(float* out, int rounds) { fmas(out, rounds); }
__global__ void __launch_bounds__(1024) tail__cured(float* out, int rounds) { fmas(out, rounds); }

// A polynomial with constants in double precision, as `* 0.5` makes it by accident, and in single precision.
template <typename T> __device__ void polynomial(const float* in, float* out, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i >= n) return;
  T x = in[i], sum = T(0.1);
#pragma unroll
  for (int k = 0; k < 64; k++) sum = sum * x + T(0.01) * T(k);
  out[i] = float(sum);
}
__global__ void wrong_format_fp64__sick(const float* in, float* out, size_t n) { polynomial<double>(in, out, n); }
__global__ void wrong_format_fp64__cured(const float* in, float* out, size_t n) { polynomial<float>(in, out, n); }

// A histogram whose threads all add to 8 addresses, and one that adds in shared memory first.
__global__ void atomics__sick(const float* in, unsigned* bins, size_t n) {
  size_t stride = (size_t)gridDim.x * blockDim.x;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += stride)
    atomicAdd(bins + (((unsigned)(in[i] * 1024.0f) + (unsigned)i) & 7), 1u);
}
__global__ void atomics__cured(const float* in, unsigned* bins, size_t n) {
  __shared__ unsigned own[8 * 32];
  if (threadIdx.x < 256) own[threadIdx.x] = 0;
  __syncthreads();
  size_t stride = (size_t)gridDim.x * blockDim.x;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += stride)
    atomicAdd(own + (((unsigned)(in[i] * 1024.0f) + (unsigned)i) & 7) * 32 + threadIdx.x % 32, 1u);
  __syncthreads();
  if (threadIdx.x < 256) atomicAdd(bins + threadIdx.x / 32, own[threadIdx.x]);
}

// Lanes of a warp take 8 ways, or warps do.
__device__ void ways(const float* in, float* out, size_t n, int way) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i >= n) return;
  float x = in[i];
#define WAY(k) case k: for (int r = 0; r < 64; r++) x = x * (1.0f + k * 0.001f) + 0.5f * k; break;
  switch (way & 7) { WAY(0) WAY(1) WAY(2) WAY(3) WAY(4) WAY(5) WAY(6) WAY(7) }
  out[i] = x;
}
__global__ void divergence__sick(const float* in, float* out, size_t n) { ways(in, out, n, threadIdx.x); }
__global__ void divergence__cured(const float* in, float* out, size_t n) { ways(in, out, n, threadIdx.x / 32); }

// An array indexed at run time lies in local memory; with constant indices it lies in registers.
__global__ void local_memory__sick(const float* in, float* out, size_t n, int step) {
  float values[64];
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i >= n) return;
  for (int k = 0; k < 64; k++) values[k] = in[i] + k;
  float sum = 0;
  for (int k = 0; k < 64; k++) sum += values[(k * step) & 63];
  out[i] = sum;
}
__global__ void local_memory__cured(const float* in, float* out, size_t n, int step) {
  float values[64];
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i >= n) return;
#pragma unroll
  for (int k = 0; k < 64; k++) values[k] = in[i] + k;
  float sum = 0;
#pragma unroll
  for (int k = 0; k < 64; k++) sum += values[(k * 5) & 63];
  out[i] = sum + (step == 5 ? 0 : 1);
}

// Each load waits for the one before it; cured: eight independent loads.
__global__ void latency__sick(const float* in, float* out, size_t n) {
  size_t threads = (size_t)gridDim.x * blockDim.x, i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  float sum = 0;
  size_t at = i;
#pragma unroll 1
  for (size_t k = 0; k < n / threads; k++) {
    float value = in[at];
    sum += value;
    at = (at + threads + (value > 1e30f ? 1 : 0)) % n;  // never adds 1: the address waits for the value
  }
  out[i] = sum;
}
__global__ void latency__cured(const float* in, float* out, size_t n) {
  size_t threads = (size_t)gridDim.x * blockDim.x, i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  float sum = 0;
#pragma unroll 8
  for (size_t k = 0; k < n / threads; k++) sum += in[i + k * threads];
  out[i] = sum;
}

// No fault: a copy by four floats, a reading of 16 MiB from L2 and of 16 KiB from L1.
__global__ void copy__healthy(const float4* in, float4* out, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i];
}
__global__ void l2__healthy(const float4* in, float4* out, size_t n) {  // n is a power of two
  float4 sum = make_float4(0, 0, 0, 0);
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
#pragma unroll 4
  for (int round = 0; round < 64; round++) {
    float4 value = __ldcg(in + ((i + (size_t)round * 40961 * 32) & (n - 1)));
    sum.x += value.x; sum.y += value.y; sum.z += value.z; sum.w += value.w;
  }
  out[i] = sum;
}
__global__ void l1__healthy(const float4* in, float4* out) {
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 4
  for (int round = 0; round < 512; round++) {
    float4 value = __ldca(in + ((threadIdx.x + round * 32) & 1023));
    sum.x += value.x; sum.y += value.y; sum.z += value.z; sum.w += value.w;
  }
  out[blockIdx.x * (size_t)blockDim.x + threadIdx.x] = sum;
}

__global__ void fill(float* values, __half* halves, size_t n, size_t n_halves) {  // uniform numbers in [0, 1)
  size_t stride = (size_t)gridDim.x * blockDim.x, first = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  for (size_t i = first; i < n; i += stride) values[i] = (unsigned)(i * 2654435761u) * 0x1p-32f;
  for (size_t i = first; i < n_halves; i += stride) halves[i] = __float2half((unsigned)(i * 2654435761u) * 0x1p-32f);
}

int main(int argc, char** argv) {
  bool once = argc > 1 && !strcmp(argv[1], "once");
  float *in, *wide, *out, *flush;
  unsigned* bins;
  CHECK(cudaMalloc(&in, N * 4)); CHECK(cudaMalloc(&out, N * 4));
  CHECK(cudaMalloc(&wide, N * 4 * 8)); CHECK(cudaMalloc(&flush, N * 4)); CHECK(cudaMalloc(&bins, 4096));
  fill<<<1024, 256>>>(in, (__half*)wide, N, 16 * N);
  CHECK(cudaMemset(bins, 0, 4096));
  cudaDeviceProp device;
  CHECK(cudaGetDeviceProperties(&device, 0));
  int sms = device.multiProcessorCount;
  int resident = 0;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, tail__sick, 1024, 0));
  int wave = sms * resident, reserve = 200 << 10;
  CHECK(cudaFuncSetAttribute(occupancy_shared_memory__sick, cudaFuncAttributeMaxDynamicSharedMemorySize, reserve));
  cublasHandle_t blas;
  cublasCreate(&blas);
  const int side = 4096;
  float one = 1, zero = 0;
  __half* half = (__half*)wide;
  auto gemm = [&](cublasComputeType_t compute, cudaDataType type, int size, const void* a, const void* b, void* c) {
    cublasStatus_t status = cublasGemmEx(blas, CUBLAS_OP_T, CUBLAS_OP_N, size, size, size, &one, a, type, size, b, type,
      size, &zero, c, type, size, compute, CUBLAS_GEMM_DEFAULT);
    if (status) { fprintf(stderr, "cublas: %d\n", status); exit(1); }
  };
  int blocks = N / 256;
  std::vector<Case> cases = {
    {"uncoalesced__sick", [&] { uncoalesced__sick<<<blocks, 256>>>(in, out, N); }},
    {"uncoalesced__cured", [&] { uncoalesced__cured<<<blocks, 256>>>(in, out, N); }},
    {"partial_sectors__sick", [&] { partial_sectors__sick<<<blocks, 256>>>(wide, out, N); }},
    {"partial_sectors__cured", [&] { partial_sectors__cured<<<blocks, 256>>>(in, out, N); }},
    {"bank_conflicts__sick", [&] { bank_conflicts__sick<<<dim3(128, 128), dim3(32, 32)>>>(in, out, 4096); }},
    {"bank_conflicts__cured", [&] { bank_conflicts__cured<<<dim3(128, 128), dim3(32, 32)>>>(in, out, 4096); }},
    {"occupancy_registers__sick", [&] { occupancy_registers__sick<<<sms * 8, 256>>>(in, out, N, 0); }},
    {"occupancy_registers__cured", [&] { occupancy_registers__cured<<<sms * 8, 256>>>(in, out, N, 0); }},
    {"occupancy_shared_memory__sick",
      [&] { occupancy_shared_memory__sick<<<sms * 8, 256, reserve>>>(in, out, N, 0); }},
    {"occupancy_shared_memory__cured", [&] { occupancy_shared_memory__cured<<<sms * 8, 256>>>(in, out, N, 0); }},
    {"occupancy_block_size__sick", [&] { occupancy_block_size__sick<<<sms * 64, 32>>>(in, out, N); }},
    {"occupancy_block_size__cured", [&] { occupancy_block_size__cured<<<sms * 8, 256>>>(in, out, N); }},
    {"one_sm__sick", [&] { one_sm__sick<<<1, 1024>>>(in, out, N / 16); }},
    {"one_sm__cured", [&] { one_sm__cured<<<sms * 2, 1024>>>(in, out, N / 16); }},
    {"few_blocks__sick", [&] { few_blocks__sick<<<sms / 4, 1024>>>(in, out, N); }},
    {"few_blocks__cured", [&] { few_blocks__cured<<<sms * 2, 1024>>>(in, out, N); }},
    {"tail__sick", [&] { tail__sick<<<wave * 2 + 1, 1024>>>(out, 20000); }},
    {"tail__cured", [&] { tail__cured<<<wave * 2, 1024>>>(out, 20000); }},
    {"wrong_format_fp64__sick", [&] { wrong_format_fp64__sick<<<blocks, 256>>>(in, out, N); }},
    {"wrong_format_fp64__cured", [&] { wrong_format_fp64__cured<<<blocks, 256>>>(in, out, N); }},
    {"atomics__sick", [&] { atomics__sick<<<sms * 8, 256>>>(in, bins, N / 4); }},
    {"atomics__cured", [&] { atomics__cured<<<sms * 8, 256>>>(in, bins, N / 4); }},
    {"divergence__sick", [&] { divergence__sick<<<blocks, 256>>>(in, out, N); }},
    {"divergence__cured", [&] { divergence__cured<<<blocks, 256>>>(in, out, N); }},
    {"local_memory__sick", [&] { local_memory__sick<<<blocks / 8, 256>>>(in, out, N / 8, 5); }},
    {"local_memory__cured", [&] { local_memory__cured<<<blocks / 8, 256>>>(in, out, N / 8, 5); }},
    {"latency__sick", [&] { latency__sick<<<sms * 2, 256>>>(in, out, N); }},
    {"latency__cured", [&] { latency__cured<<<sms * 2, 256>>>(in, out, N); }},
    {"copy__healthy", [&] { copy__healthy<<<blocks / 4, 256>>>((float4*)in, (float4*)out, N / 4); }},
    {"l2__healthy", [&] { l2__healthy<<<sms * 64, 256>>>((float4*)in, (float4*)out, 1 << 20); }},
    {"l1__healthy", [&] { l1__healthy<<<sms * 32, 256>>>((float4*)in, (float4*)out); }},
    {"no_tensor_cores__sick", [&] { gemm(CUBLAS_COMPUTE_32F_PEDANTIC, CUDA_R_32F, side, in, in, out); }},
    {"no_tensor_cores__cured", [&] { gemm(CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F, side, in, in, out); }},
    {"unaligned_gemm__sick", [&] { gemm(CUBLAS_COMPUTE_32F, CUDA_R_16F, side + 1, half, half, out); }},
    {"unaligned_gemm__cured", [&] { gemm(CUBLAS_COMPUTE_32F, CUDA_R_16F, side, half, half, out); }},
    {"small_gemm__sick", [&] { gemm(CUBLAS_COMPUTE_32F, CUDA_R_16F, 512, half, half, out); }},
    {"gemm__healthy", [&] { gemm(CUBLAS_COMPUTE_32F, CUDA_R_16F, 8192, half, half, out); }},
  };
  run_all(cases, once, flush, N * 4);
}
