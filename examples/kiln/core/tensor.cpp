#include "tensor.hpp"

#include <numeric>

namespace kiln {

Tensor::Tensor(std::size_t size, double value) : values_(size, value) {}

std::size_t Tensor::size() const { return values_.size(); }

double* Tensor::data() { return values_.data(); }

double& Tensor::operator[](std::size_t index) { return values_[index]; }

double Tensor::sum() const { return std::accumulate(values_.begin(), values_.end(), 0.0); }

}  // namespace kiln
