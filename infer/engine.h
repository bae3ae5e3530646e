#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "infer/cost_model.h"
#include "infer/grow.h"
#include "infer/live_sequence.h"
#include "infer/request.h"
#include "model/drafter.h"
#include "model/kv_cache.h"
#include "model/target.h"

namespace clover::infer {

struct EngineOptions {
  GrowthRule growth{Policy::automatic};
  int64_t budget = -1;   // nodes a sequence, root excluded; -1: the policy's own (clover 4, chain all, static
                         // all, auto no cap)
  bool typical = false;  // lossy verification
  bool suffix = false;   // also guess what followed earlier places like the present one
  int64_t max_batch = 16;       // sequences decoded at once
  int64_t kv_memory = 0;        // bytes for keys and values; 0: a quarter of the machine's free memory
  int64_t page_size = 64;       // tokens a page
  int64_t prefill_chunk = 512;  // prompt tokens a pass
};

/// Running totals of an engine.  Tokens per step = (tokens - first tokens) / passes, summed over sequences.
struct EngineStats {
  int64_t requests = 0;      // finished
  int64_t tokens = 0;        // emitted by finished and running requests
  int64_t first_tokens = 0;  // of which prefill yielded
  int64_t passes = 0;        // decode passes summed over sequences
  int64_t steps = 0;         // decode passes of the batch
  int64_t rows = 0;          // rows the decode passes computed
  int64_t prompt_tokens = 0;
  int64_t shared_prompt_tokens = 0;  // of which were taken from requests that began alike
  double prefill_seconds = 0;
  double decode_seconds = 0;  // all of a decode step, drafting included
  double calibration_seconds = 0;
  double target_seconds = 0, drafter_seconds = 0, grow_seconds = 0,
         verify_seconds = 0;  // parts of decode_seconds
  std::vector<int64_t> accepted_histogram;
  double tokens_per_step() const { return passes ? double(tokens - first_tokens) / double(passes) : 0; }
};

/// Decodes any number of requests, at most max_batch at once, each advancing by its own accepted length,
/// joining and leaving at any step.  Token ids depend on nothing but the request (design.md, promise 1).
class Engine {
 public:
  /// `drafter` may be null (plain decoding) and must be frozen in the target's dtype.  All are borrowed.
  Engine(const model::Target& target, model::Drafter* drafter, const data::Tokenizer& tokenizer,
         EngineOptions options);

  /// Queues a request.  InputError when its prompt is empty, holds an id outside the vocabulary or leaves no
  /// room in the context or in the cache.
  void submit(Request request);

  bool idle() const { return waiting_.empty() && live_.empty(); }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t running() const { return static_cast<int64_t>(live_.size()); }

  /// One pass: admits and prefills what has room, else decodes one step.  Returns what finished, in order of
  /// completion.
  std::vector<Completion> step();

  /// Called with every newly certain piece of text of a request.
  void on_text(std::function<void(int64_t tag, const std::string& text)> callback) {
    on_text_ = std::move(callback);
  }

  const EngineStats& stats() const { return stats_; }

 private:
  void admit();
  void prefill(LiveSequence& live);
  void prime_prompt(LiveSequence& live, const model::Features& features, int64_t begin, int64_t end);
  void decode();
  void calibrate();
  std::vector<CandidateTree> draft();
  std::vector<CandidateTree> draft_with_heads(double& seconds);
  bool graft_suffixes(std::vector<CandidateTree>& trees);
  model::DraftState prime();
  int64_t longest_guess(const LiveSequence& live) const;
  GrowthLimit limit(const LiveSequence& live) const;
  bool drafting() const { return drafter_ != nullptr && options_.growth.policy != Policy::off; }
  int64_t most_pages(const Request& request) const;
  int64_t promised_pages() const;
  Accepted verify(const CandidateTree& tree, const at::Tensor& logits, const LiveSequence& live,
                  int64_t position) const;
  model::RowBatch rows_of(const std::vector<CandidateTree>& trees) const;
  void settle(LiveSequence& live, const CandidateTree& tree, const model::TargetOutput& output, int64_t base);
  std::vector<Completion> collect();

  const model::Target& target_;
  model::Drafter* drafter_;
  EngineOptions options_;
  const data::Tokenizer& tokenizer_;
  model::KvCache cache_;
  CostModel costs_;
  bool calibrated_ = false;
  std::deque<Request> waiting_;
  std::vector<std::unique_ptr<LiveSequence>> live_;
  EngineStats stats_;
  std::function<void(int64_t, const std::string&)> on_text_;
};

}  // namespace clover::infer
