#pragma once
#include <vector>

double sum(const std::vector<double>& values);
double mean(const std::vector<double>& values);
#ifdef MINI_CUDA
double sum_on_gpu(const std::vector<double>& values);
#endif
