// Applies every operator once: operator N adds N to each element.
#include <cstdio>

#include "table.hpp"

int main() {
  kiln::Tensor tensor(4, 1.0);
  double expected = 4.0;
  double step = 0.0;
  for (kiln::Operator apply : kiln::operators()) {
    apply(tensor);
    step += 1.0;
    expected += 4.0 * step;
  }
  std::printf("%zu operators, sum %.1f\n", kiln::operators().size(), tensor.sum());
  return tensor.sum() == expected ? 0 : 1;
}
