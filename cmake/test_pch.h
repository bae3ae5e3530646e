// Precompiled header of the test programs.
#pragma once
#include "cmake/pch.h"
// After it: GoogleTest's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
