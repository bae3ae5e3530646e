#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <map>

#include "infer/engine/engine.h"
#include "kernels/gpu/gpu.h"
#include "model/target/target.h"
#include "tests/infer/requests/tiny_tokenizer.h"
#include "tests/support/damaged_target.h"
#include "tests/support/reading.h"
#include "tests/support/temporary_folder.h"

namespace clover::infer {

using Answers = std::map<int64_t, std::vector<int64_t>>;  // token ids by tag

class GpuEngineTest : public testing::Test {
 protected:
  GpuEngineTest() {
    test::write_tiny_tokenizer(folder_);
    tokenizer_ = data::Tokenizer::load(folder_);
    load("tied-bf16");
  }

  void load(const char* target) {
    target_ = model::Target::load(test::golden_target(target), at::kBFloat16, kernels::open_gpu(0));
  }

  static std::vector<Request> requests(int64_t count, double temperature) {
    std::vector<Request> all;
    for (int64_t tag = 0; tag < count; ++tag) {
      Request request;
      request.tag = tag;
      for (int64_t i = 0; i < 17 && tag % 2 == 0; ++i) request.prompt.push_back(3 + i * i % 120);
      for (int64_t i = 0; i <= tag % 5; ++i) request.prompt.push_back(5 + (tag * 31 + i * 7) % 120);
      request.sampling.temperature = temperature;
      request.random = {11, static_cast<uint64_t>(tag)};
      request.max_tokens = 5 + tag % 3 * 4;
      all.push_back(std::move(request));
    }
    return all;
  }

  static EngineOptions options(Policy policy, int64_t budget, int64_t max_batch, bool graphs = true) {
    EngineOptions options;
    options.growth.policy = policy;
    options.budget = budget;
    options.max_batch = max_batch;
    options.page_size = max_batch == 1 ? 64 : 8;
    options.prefill_chunk = max_batch == 1 ? 512 : 5;
    options.kv_memory = 4 << 20;
    options.graphs = graphs;
    return options;
  }

  /// Runs steps until `count` requests have their first token.
  static void read_prompts(Engine& engine, int64_t count) {
    const int64_t before = engine.stats().first_tokens;
    while (engine.stats().first_tokens - before < count) engine.step();
  }

  Answers run(const std::vector<Request>& requests, EngineOptions options, model::Drafter* drafter) {
    Engine engine(*target_, drafter, *tokenizer_, options);
    for (const Request& request : requests) engine.submit(request);
    Answers answers;
    while (!engine.idle())
      for (Completion& done : engine.step()) {
        if (!done.error.empty()) errors_[done.tag] = done.error;
        answers[done.tag] = std::move(done.token_ids);
      }
    stats_ = engine.stats();
    return answers;
  }

  /// Untrained heads, which guess that the last token is repeated.
  std::shared_ptr<model::Drafter> drafter(const char* kind, const at::Tensor& token_map = {},
                                          const nlohmann::json& settings = nlohmann::json::object()) const {
    auto made = model::make_drafter(kind, settings, target_->view(), token_map, false, 3);
    made->freeze(at::kBFloat16);
    return made;
  }

  /// Heads with random numbers added to their initial weights, which are partly zero.
  static std::shared_ptr<model::Drafter> moved_drafter(const model::Target& target, const char* kind,
                                                       const at::Tensor& token_map,
                                                       const nlohmann::json& settings) {
    auto made = model::make_drafter(kind, settings, target.view(), token_map, false, 3);
    const at::NoGradGuard no_grad;
    auto generator = at::globalContext().defaultGenerator(at::kCPU);
    generator.set_current_seed(17);
    for (at::Tensor& parameter : made->parameters())
      parameter.add_((at::randn(parameter.sizes()) * 0.05).to(parameter.device()));
    made->freeze(at::kBFloat16);
    return made;
  }

  std::map<int64_t, std::string> errors_;  // of all runs so far, by tag
  test::TemporaryFolder folder_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  std::unique_ptr<model::Target> target_;
  EngineStats stats_;
};

}  // namespace clover::infer
