#include <torch/extension.h>

__global__ void scale_kernel(const float* values, float* scaled, float factor, int64_t count) {
  const int64_t index = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (index < count) {
    scaled[index] = values[index] * factor;
  }
}

torch::Tensor scale_on_gpu(const torch::Tensor& values, double factor) {
  const auto input = values.to(torch::kFloat32).contiguous();
  auto scaled = torch::empty_like(input);
  const int64_t count = input.numel();
  if (count > 0) {
    const int threads = 256;
    const int blocks = static_cast<int>((count + threads - 1) / threads);
    scale_kernel<<<blocks, threads>>>(
        input.data_ptr<float>(), scaled.data_ptr<float>(), static_cast<float>(factor), count);
  }
  return scaled;
}
