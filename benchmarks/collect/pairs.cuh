// What diagnosed.cu and unseen.cu share: they are lists of kernels, named FAULT__sick, FAULT__cured or WORK__healthy.
//
// A program prints name,seconds for each kernel: the median of 20 launches by CUDA events, with the L2 cache flushed
// before each. With the argument `once` it launches each kernel once, for ncu (--profile-from-start off).
#pragma once
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t status = (call); if (status != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status)); exit(1); } } while (0)

struct Case { const char* name; std::function<void()> launch; };

inline void run_all(const std::vector<Case>& cases, bool once, void* flush, size_t flush_bytes) {
  CHECK(cudaDeviceSynchronize());
  cudaProfilerStart();
  if (!once) printf("name,seconds\n");
  for (auto& item : cases) {
    std::vector<float> times;
    cudaEvent_t start, end;
    cudaEventCreate(&start); cudaEventCreate(&end);
    for (int repeat = 0; repeat < (once ? 1 : 23); repeat++) {
      if (!once) CHECK(cudaMemsetAsync(flush, repeat, flush_bytes));
      cudaEventRecord(start);
      item.launch();
      cudaEventRecord(end);
      CHECK(cudaDeviceSynchronize());
      float milliseconds;
      CHECK(cudaEventElapsedTime(&milliseconds, start, end));
      if (repeat > 2 || once) times.push_back(milliseconds / 1e3f);
    }
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    if (!once) printf("%s,%.9g\n", item.name, times[times.size() / 2]); else fprintf(stderr, "%s\n", item.name);
  }
}
