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
#include "infer/engine/scheduler.h"
#include "model/cache/kv_cache.h"
#include "model/drafters/drafter.h"
#include "model/graphs/pass_graphs.h"
#include "model/graphs/recorder.h"
#include "model/target/target.h"

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

  /// One pass of the target: a decode step of all sequences that have their first token, and a chunk of what
  /// those that join have to read.  Returns what finished.
  std::vector<Completion> step();

  /// Called with every newly certain piece of text of a request.
  void on_text(std::function<void(int64_t tag, const std::string& text)> callback) {
    on_text_ = std::move(callback);
  }

  /// The work is done: what passes cost goes to EngineOptions::costs.
  void keep_costs() const { drafting_.keep_costs(); }

  const EngineStats& stats() const { return stats_; }

 private:
  void advance();
  void cut_to_room(std::vector<CandidateTree>& trees, std::span<const PromptChunk> chunks) const;
  int64_t most_pages(const Request& request) const;
  std::vector<LiveSequence*> decoding() const;
  DecodePass next_pass();
  std::optional<DecodePass> take_begun_pass();
  void take_in_chunks(DecodePass& pass);
  void begin_next(DecodePass& pass);
  void begin_next_pass(DecodePass& pass);
  void observe(const DecodePass& pass, double share);
  std::vector<Accepted> verify(const DecodePass& pass) const;
  Accepted verify(const CandidateTree& tree, const Verdict& verdict, int64_t base, const LiveSequence& live,
                  int64_t position) const;
  void settle(const DecodePass& pass, std::span<const Accepted> accepted);
  void settle_trees(const DecodePass& pass, std::span<const Accepted> accepted,
                    std::vector<Drafting::Seen>& seen);
  void settle_prompts(const DecodePass& pass, std::span<const Accepted> accepted,
                      std::vector<Drafting::Seen>& seen);
  std::vector<Completion> collect();

  const model::Target& target_;
  EngineOptions options_;
  const data::Tokenizer& tokenizer_;
  std::vector<int64_t> end_ids_;
  model::KvCache cache_;
  model::Recorder recorder_;
  model::PassGraphs passes_;
  Scheduler schedule_;
  EngineStats stats_;
  Drafting drafting_;
  DecodePasses decodes_;
  std::optional<DecodePass> begun_;  // the next step's, on a GPU
  int64_t weight_bytes_, kv_bytes_;  // of a pass, and of a token in the target's layers
  std::function<void(int64_t, const std::string&)> on_text_;
};

}  // namespace clover::infer
