// Applies every small operator once (add_N adds N), and checks one curve.
#include <cmath>
#include <cstdio>

#include "registry.hpp"

int main() {
  kiln::Tensor tensor(4, 1.0);
  double expected = 4.0;
  for (const auto& [name, apply] : kiln::operators()) {
    if (name.rfind("add_", 0) != 0) continue;
    apply(tensor);
    expected += 4.0 * std::stoi(name.substr(4));
  }
  kiln::Tensor angle(1, 0.5);
  kiln::operators().at("sine")(angle);
  std::printf("%zu operators, sum %.1f, sine %.4f\n", kiln::operators().size(), tensor.sum(),
              angle[0]);
  return tensor.sum() == expected && std::abs(angle[0] - std::sin(0.5)) < 1e-3 ? 0 : 1;
}
