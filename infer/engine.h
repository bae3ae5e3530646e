#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "infer/drafting.h"
#include "infer/engine_options.h"
#include "infer/request.h"
#include "infer/scheduler.h"
#include "kernels/sample.h"
#include "model/drafter.h"
#include "model/kv_cache.h"
#include "model/pass_graphs.h"
#include "model/recorder.h"
#include "model/target.h"

namespace clover::infer {

/// Decodes any number of requests, at most max_batch at once, each advancing by its own accepted length,
/// joining and leaving at any step.  Token ids depend on nothing but the request (docs/architecture.md).
class Engine {
 public:
  /// `drafter` may be null (plain decoding) and must be frozen in the target's dtype.  All are borrowed.
  Engine(const model::Target& target, model::Drafter* drafter, const data::Tokenizer& tokenizer,
         EngineOptions options);

  /// Queues a request.  InputError when its prompt is empty, holds an id outside the vocabulary or leaves no
  /// room in the context or in the cache.
  void submit(Request request);

  bool idle() const { return schedule_.idle(); }
  int64_t waiting() const { return schedule_.waiting(); }

  /// Reads prompts of sequences that join, a chunk when others decode already, then decodes one step. Returns
  /// what finished, in order of completion.
  std::vector<Completion> step();

  /// Called with every newly certain piece of text of a request.
  void on_text(std::function<void(int64_t tag, const std::string& text)> callback) {
    on_text_ = std::move(callback);
  }

  const EngineStats& stats() const { return stats_; }

 private:
  void join();
  int64_t read(LiveSequence& live, int64_t most);
  void finish_reading(LiveSequence& live, const model::TargetOutput& output, int64_t last_row);
  void decode();
  void cut_to_room(std::vector<CandidateTree>& trees) const;
  int64_t most_pages(const Request& request) const;
  /// What verification needs of a pass, on the CPU: the target's token after every row where a GPU has chosen
  /// them, or the logits.
  struct Verdict {
    at::Tensor logits, tokens;
  };
  /// Whether it chooses them.
  bool chooses_there() const { return !target_.device().is_cpu() && !options_.typical; }
  /// They, there: i64 [R], under one of `rules` a row.
  static at::Tensor chosen(const at::Tensor& logits, std::vector<kernels::RowRule> rules);
  /// `rules`: of every row where they are chosen there, else none.
  Verdict verdict(const at::Tensor& logits, std::vector<kernels::RowRule> rules) const;
  /// A pass over trees and what came of it.
  struct Judged {
    model::TargetOutput output;
    Verdict said;
    double seconds = 0;    // until it was said
    bool drafted = false;  // a GPU has begun the next drafts, and keys and values stand together already
  };
  Judged run_pass(const std::vector<CandidateTree>& trees);
  Judged run_pass_there(const std::vector<CandidateTree>& trees);
  std::vector<kernels::RowRule> rules_of(const std::vector<CandidateTree>& trees) const;
  /// The root sits at position `length`, so the first token decided there is at the one after it.
  int64_t next_position(const LiveSequence& live) const { return cache_.length(live.sequence()) + 1; }
  std::vector<Accepted> verify(const std::vector<CandidateTree>& trees, const Verdict& said) const;
  Accepted verify(const CandidateTree& tree, const Verdict& verdict, int64_t base, const LiveSequence& live,
                  int64_t position) const;
  model::RowBatch rows_of(const std::vector<CandidateTree>& trees) const;
  void settle(const std::vector<CandidateTree>& trees, const std::vector<Accepted>& accepted,
              const Judged& pass);
  std::vector<Completion> collect();

  const model::Target& target_;
  EngineOptions options_;
  const data::Tokenizer& tokenizer_;
  model::KvCache cache_;
  model::Recorder recorder_;
  model::PassGraphs passes_;
  Scheduler schedule_;
  EngineStats stats_;
  Drafting drafting_;
  int64_t weight_bytes_, kv_bytes_;  // of a pass, and of a token in the target's layers
  std::function<void(int64_t, const std::string&)> on_text_;
};

}  // namespace clover::infer
