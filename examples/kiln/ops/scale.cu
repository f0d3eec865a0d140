// One kernel, so that a CUDA build of the example holds device code.
__global__ void scale(double* values, double factor, int size) {
  int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < size) values[index] *= factor;
}

void kiln_scale(double* values, double factor, int size) {
  scale<<<(size + 255) / 256, 256>>>(values, factor, size);
}
