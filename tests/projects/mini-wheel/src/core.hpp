#pragma once

const char* where();
int total();
