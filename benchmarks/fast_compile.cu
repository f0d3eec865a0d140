// Run time of kernels with and without nvcc's --Ofast-compile:
//   for o in "" --Ofast-compile={min,mid,max}; do time nvcc -arch=native $o -o k benchmarks/fast_compile.cu && ./k; done
#include <cstdio>

__global__ void matrix_product(const float *a, const float *b, float *c, int n) {
    __shared__ float left[32][32], right[32][32];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 32 + y, column = blockIdx.x * 32 + x;
    float sum = 0;
    for (int k = 0; k < n; k += 32) {
        left[y][x] = a[row * n + k + x];
        right[y][x] = b[(k + y) * n + column];
        __syncthreads();
        for (int i = 0; i < 32; i++) sum += left[y][i] * right[i][x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

__global__ void softmax(const float *a, float *out, int n) {
    const float *row = a + blockIdx.x * n;
    float largest = -1e30f, sum = 0;
    for (int i = 0; i < n; i++) largest = fmaxf(largest, row[i]);
    for (int i = 0; i < n; i++) sum += expf(row[i] - largest);
    for (int i = threadIdx.x; i < n; i += blockDim.x) out[blockIdx.x * n + i] = expf(row[i] - largest) / sum;
}

__global__ void gelu(const float *a, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = a[i];
    for (int k = 0; k < 16; k++) x = .5f * x * (1 + erff(x * .7071f));
    out[i] = x;
}

template <class Launch> void print_time(const char *name, Launch launch) {
    cudaEvent_t first, last;
    float ms = 0;
    cudaEventCreate(&first);
    cudaEventCreate(&last);
    for (int series = 0; series < 3; series++) { // the last series counts
        cudaEventRecord(first);
        for (int i = 0; i < 5; i++) launch();
        cudaEventRecord(last);
        cudaEventSynchronize(last);
        cudaEventElapsedTime(&ms, first, last);
    }
    printf("%s %.3f ms\n", name, ms / 5);
}

int main() {
    const int n = 4096;
    float *a, *b, *c;
    for (float **matrix : {&a, &b, &c}) {
        if (cudaMalloc(matrix, sizeof(float) * n * n) != cudaSuccess) return 1;
        cudaMemset(*matrix, 0, sizeof(float) * n * n);
    }
    print_time("matrix_product", [&] { matrix_product<<<dim3(n / 32, n / 32), dim3(32, 32)>>>(a, b, c, n); });
    print_time("softmax", [&] { softmax<<<n, 256>>>(a, c, n); });
    print_time("gelu", [&] { gelu<<<n * n / 256, 256>>>(a, c, n * n); });
}
