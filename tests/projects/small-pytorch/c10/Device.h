#pragma once
int device_count();
