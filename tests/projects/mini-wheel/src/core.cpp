#include "core.hpp"

#include <cassert>

const char* where() { return __FILE__; }

int total() {
  int sum = 0;
  for (int index = 1; index <= MINI_FILES; ++index) {
    sum += index;
  }
  return sum;
}
