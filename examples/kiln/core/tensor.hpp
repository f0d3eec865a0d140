// The core: a vector of numbers and the type of an operator on it.
#pragma once
#include <cstddef>
#include <vector>

namespace kiln {

class Tensor {
 public:
  explicit Tensor(std::size_t size, double value = 0.0);
  std::size_t size() const;
  double* data();
  double& operator[](std::size_t index);
  double sum() const;

 private:
  std::vector<double> values_;
};

using Function = void (*)(Tensor&);

}  // namespace kiln
