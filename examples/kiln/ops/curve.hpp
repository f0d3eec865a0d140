// A function as a table of points, with linear interpolation between them.
#pragma once
#include <algorithm>
#include <cstdint>

#include "tensor.hpp"

namespace kiln {

constexpr double steps = 32767;  // the resolution of values between 0 and 1

struct Point {
  std::int16_t value, rise;
};

// The points cover arguments from 0 to 1; other arguments use the first or the last point.
template <std::size_t size>
void follow(const Point (&curve)[size], Tensor& tensor) {
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    double place = std::clamp(tensor[i], 0.0, 1.0) * (size - 1);
    auto index = static_cast<std::size_t>(place);
    tensor[i] = (curve[index].value + (place - index) * curve[index].rise) / steps;
  }
}

}  // namespace kiln
