#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "infer/engine/engine.h"

namespace clover::train {

/// Answers the requests make_request(0) .. make_request(count - 1) with `engine`, and returns the completions
/// in this order.  A request is made when the engine is about to need it.  label: of the progress shown; "":
/// none.  InputError when a request ends with an error, infer::Interrupted when the user stops.
std::vector<infer::Completion> answer_requests(infer::Engine& engine, int64_t max_batch, size_t count,
                                               const std::function<infer::Request(size_t)>& make_request,
                                               const std::string& label);

}  // namespace clover::train
