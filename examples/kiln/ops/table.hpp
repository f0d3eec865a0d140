// Every generated operator, in order.
#pragma once
#include <vector>

#include "tensor.hpp"

namespace kiln {

const std::vector<Operator>& operators();

}  // namespace kiln
