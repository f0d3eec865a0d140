#include "sum.hpp"

int main() {
  for (int round = 0; round < MINI_ROUNDS; ++round) {
    if (sum({1.0, 2.0, 3.0}) != 6.0 || mean({1.0, 3.0}) != 2.0) {
      return 1;
    }
  }
  return 0;
}
