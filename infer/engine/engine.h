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

/// Decodes any number of requests by continuous batching: at most max_batch sequences at once.  Each may join
/// at any step, advances by the tokens accepted for it and leaves when it is finished.  Unless verification
/// is typical, token ids depend on nothing but the request (docs/architecture.md).
class Engine {
 public:
  /// `drafter` is null for decoding without heads; otherwise it is frozen, in the target's dtype.  All but
  /// `options` are borrowed.
  Engine(const model::Target& target, model::Drafter* drafter, const data::Tokenizer& tokenizer,
         EngineOptions options);

  /// Queues a request.  InputError when its prompt is empty, holds an id outside the vocabulary or leaves no
  /// room for a token in the context, or when the whole KV cache is too small for it.
  void submit(Request request);

  bool idle() const { return scheduler_.idle(); }           // no request is queued or being answered
  int64_t waiting() const { return scheduler_.waiting(); }  // queued requests

  /// One step: a pass of the target over the trees of all sequences that decode and over the next prefill
  /// chunks.  Returns the answers that it finished.
  std::vector<Completion> step();

  /// From now on `callback` is called with each piece of an answer's text as soon as no stop string can
  /// remove it any more, and with the request's tag.
  void on_text(std::function<void(int64_t tag, const std::string& text)> callback) {
    on_text_ = std::move(callback);
  }

  /// Writes the measured seconds of passes to EngineOptions::costs, for later runs.
  void save_costs() const { drafting_.save_costs(); }

  const EngineStats& stats() const { return stats_; }

 private:
  DecodePass decode();
  std::vector<LiveSequence*> decoding() const;
  std::vector<CandidateTree> draft(Sequences sequences);
  void cut_to_room(std::vector<CandidateTree>& trees, std::span<const PrefillChunk> chunks) const;
  void commit_prefill(DecodePass& pass);
  std::vector<AcceptedPath> verify(const DecodePass& pass) const;
  AcceptedPath verify(const CandidateTree& tree, const TargetTokens& target, int64_t base,
                      const LiveSequence& live, int64_t position) const;
  void commit(const DecodePass& pass, std::span<const AcceptedPath> accepted);
  void commit_trees(const DecodePass& pass, std::span<const AcceptedPath> accepted,
                    std::vector<Drafting::AcceptedRows>& rows);
  void finish_prefills(const DecodePass& pass, std::span<const AcceptedPath> accepted,
                       std::vector<Drafting::AcceptedRows>& rows);
  std::vector<Completion> collect();
  void count_step(const DecodePass& pass);
  void count_seconds(const DecodePass& pass, double seconds);
  void check_recorded(const Request& request) const;
  int64_t max_pages(const Request& request) const;  // of the KV cache that it may need

  const model::Target& target_;
  EngineOptions options_;
  const data::Tokenizer& tokenizer_;
  std::vector<int64_t> end_ids_;
  model::KvCache cache_;
  model::GraphRunner graph_runner_;
  model::PassGraphs pass_graphs_;
  Scheduler scheduler_;
  EngineStats stats_;
  Drafting drafting_;
  PassRunner pass_runner_;
  RunAhead run_ahead_;
  int64_t weight_bytes_;        // of the target
  int64_t kv_bytes_per_token_;  // in the target's layers
  std::function<void(int64_t, const std::string&)> on_text_;
};

}  // namespace clover::infer
