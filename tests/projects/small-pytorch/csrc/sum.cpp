#include "aten/Operators.h"
#include "c10/Device.h"

extern "C" int small_sum(int left, int right) { return add(left, right) * device_count(); }
