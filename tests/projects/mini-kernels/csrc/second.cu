__global__ void second(float *x) { x[threadIdx.x] *= 2; }
void start_second(float *x) { second<<<1, 32>>>(x); }
