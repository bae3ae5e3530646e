#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "infer/engine/decode_pass.h"
#include "infer/engine/drafting.h"
#include "infer/engine/engine_options.h"
#include "infer/engine/request.h"
#include "infer/engine/run_ahead.h"
#include "infer/engine/scheduler.h"
#include "model/cache/kv_cache.h"
#include "model/drafters/drafter.h"
#include "model/graphs/graph_runner.h"
#include "model/graphs/pass_graphs.h"
#include "model/target/target.h"

namespace clover::infer {

/// Decodes any number of requests by continuous batching: at most max_batch sequences at once, each of which
/// joins at any step, advances by its own accepted length and leaves when it is finished.  Unless
/// verification is typical, token ids depend on nothing but the request (docs/architecture.md).
class Engine {
 public:
  /// `drafter` may be null (plain decoding) and must be frozen in the target's dtype.  All are borrowed.
  Engine(const model::Target& target, model::Drafter* drafter, const data::Tokenizer& tokenizer,
         EngineOptions options);

  /// Queues a request.  InputError when its prompt is empty, holds an id outside the vocabulary or leaves no
  /// room for a token in the context, or when the cache could not hold it alone.
  void submit(Request request);

  bool idle() const { return schedule_.idle(); }
  int64_t waiting() const { return schedule_.waiting(); }

  /// One step: a pass of the target over the trees of all sequences that decode and over the next chunks of
  /// prompts.  Returns the requests that it finished.
  std::vector<Completion> step();

  /// `callback` is called with every piece of text that has become certain, and its request's tag.
  void on_text(std::function<void(int64_t tag, const std::string& text)> callback) {
    on_text_ = std::move(callback);
  }

  /// Writes what passes cost to EngineOptions::costs, for later runs.
  void keep_costs() const { drafting_.keep_costs(); }

  const EngineStats& stats() const { return stats_; }

 private:
  DecodePass decode();
  std::vector<LiveSequence*> decoding() const;
  std::vector<CandidateTree> draft(Sequences sequences);
  void cut_to_room(std::vector<CandidateTree>& trees, std::span<const PrefillChunk> chunks) const;
  void commit_prefill(DecodePass& pass);
  std::vector<Accepted> verify(const DecodePass& pass) const;
  Accepted verify(const CandidateTree& tree, const TargetTokens& target, int64_t base,
                  const LiveSequence& live, int64_t position) const;
  void commit(const DecodePass& pass, std::span<const Accepted> accepted);
  void commit_trees(const DecodePass& pass, std::span<const Accepted> accepted,
                    std::vector<Drafting::AcceptedRows>& rows);
  void finish_prefills(const DecodePass& pass, std::span<const Accepted> accepted,
                       std::vector<Drafting::AcceptedRows>& rows);
  std::vector<Completion> collect();
  void count_step(const DecodePass& pass);
  void count_seconds(const DecodePass& pass, double seconds);
  int64_t most_pages(const Request& request) const;

  const model::Target& target_;
  EngineOptions options_;
  const data::Tokenizer& tokenizer_;
  std::vector<int64_t> end_ids_;
  model::KvCache cache_;
  model::GraphRunner graph_runner_;
  model::PassGraphs passes_;
  Scheduler schedule_;
  EngineStats stats_;
  Drafting drafting_;
  PassRunner runner_;
  RunAhead ahead_;
  int64_t weight_bytes_;  // that a pass reads
  int64_t kv_bytes_;      // of a token in the target's layers
  std::function<void(int64_t, const std::string&)> on_text_;
};

}  // namespace clover::infer
