// Every operator of this build, by name.
#pragma once
#include <map>
#include <string>

#include "tensor.hpp"

namespace kiln {

const std::map<std::string, Function>& operators();

}  // namespace kiln
