#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "infer/engine/live_sequence.h"
#include "infer/tree/candidate_tree.h"
#include "kernels/gpu/gpu.h"
#include "kernels/vocabulary/sample.h"
#include "model/cache/kv_cache.h"
#include "model/graphs/pass_graphs.h"
#include "model/target/target.h"

namespace clover::infer {

/// What the target says after each of R rows, on the CPU: the tokens, where a GPU has sampled them or all are
/// arg-maxima, else the logits that verification chooses them from.  The other one is undefined.
struct TargetTokens {
  at::Tensor tokens;  // i64 [R]; -1: the logits are no numbers
  at::Tensor logits;  // fp32 [R, V]
};

/// How far the keys and values of a pass's accepted rows are in the cache.
enum class CommitState {
  pending,    // where the pass wrote them
  compacted,  // moved together behind the committed ones (KvCache::move)
  committed,  // .. and counted as such (KvCache::commit)
};

/// A pass of the target: a tree of each decoding sequence, and chunks of those that are prefilled.
struct DecodePass {
  std::vector<LiveSequence*> sequences;  // [S] that decode
  std::vector<CandidateTree> trees;      // [S]; their rows are the first of the pass, in order
  std::vector<int64_t> context_lengths;  // [S] tokens that were cached before
  std::vector<PrefillChunk> chunks;      // their rows follow those of the trees
  bool edits_logits = false;             // a request's controls change logits before tokens are chosen
  /// Its seconds tell of other passes of its shape: it was not the first one, and prefilled nothing.
  bool representative = true;
  CommitState commit = CommitState::pending;

  model::TargetOutput output;  // valid until the next pass; where a GPU samples, without logits
  TargetTokens target;         // of the rows `wanted`, once PassRunner::wait has returned
  double seconds = 0;          // from the launch to `target`, sampling included
  double prefill_seconds = 0;  // of the CPU, for what comes with the chunks (Engine::commit_prefill)

  // Where a GPU samples the tokens:
  at::Tensor tokens;                // i64 [W] of the rows `wanted`, on the GPU; valid as `output`
  kernels::PendingCopy token_copy;  // of `tokens`, on its way to the CPU
  std::unique_ptr<kernels::GpuEvent> launched;
  double capture_seconds = 0;                    // of capturing a graph for it; not part of `seconds`
  std::optional<std::vector<int64_t>> retained;  // elements of `token_copy` left by PassRunner::retain
  bool owns_features = false;                    // later passes do not overwrite output.features

  bool plain() const;         // its trees are bare roots
  bool ends_prompts() const;  // a chunk is its prompt's last
  int64_t tree_rows() const;
  int64_t chunk_rows() const;
  /// Rows that the target's token is wanted after: all rows of trees and the last one of each last chunk,
  /// ascending, [W].
  std::vector<int64_t> wanted() const;
};

/// Runs passes.  On a GPU `begin` launches one and `wait` waits for its tokens; on a CPU `begin` does it all.
class PassRunner {
 public:
  /// All but `taps`, the features to capture, are borrowed.  `typical`: verification is lossy and needs the
  /// logits.
  PassRunner(const model::Target& target, model::KvCache& cache, model::PassGraphs& passes,
             const model::GraphRunner& graph_runner, model::FeatureTaps taps, bool typical)
      : cache_(cache),
        passes_(passes),
        graph_runner_(graph_runner),
        taps_(taps),
        device_(target.device()),
        typical_(typical) {}

  /// Whether the GPU samples tokens, so that it can go on before the CPU knows them.
  bool samples_on_device() const { return !device_.is_cpu() && !typical_; }

  DecodePass begin(std::vector<LiveSequence*> sequences, std::vector<CandidateTree> trees,
                   std::vector<PrefillChunk> chunks = {});

  /// Whether max_tokens leaves the sequence a token behind the next one.
  static bool continues(const LiveSequence& live) { return live.tokens_left() > 1; }

  /// Launches, behind `pass`, which is plain and not waited for, the next pass: over its tokens, whatever
  /// they are, of the sequences that continue (one or more), and over `chunks`.  Commits the rows of `pass`.
  DecodePass begin_behind(DecodePass& pass, std::vector<PrefillChunk> chunks = {});

  /// Leaves only these sequences, ascending indices, in a plain pass, and these of its chunks.
  void retain(DecodePass& pass, std::span<const int64_t> sequences, std::span<const int64_t> chunks) const;

  /// Copies the features of the rows `wanted`, and only those, to where later passes do not write.
  void own_features(DecodePass& pass) const;

  /// Waits for the tokens, if any are wanted: fills `target` and `seconds`.
  void wait(DecodePass& pass) const;

 private:
  DecodePass begin(std::vector<LiveSequence*> sequences, std::vector<CandidateTree> trees,
                   std::vector<PrefillChunk> chunks, const at::Tensor& first_ids);
  void launch_on_device(DecodePass& pass, const model::RowBatch& batch, const at::Tensor& first_ids) const;
  void run_and_wait(DecodePass& pass, const model::RowBatch& batch) const;

  model::KvCache& cache_;
  model::PassGraphs& passes_;
  const model::GraphRunner& graph_runner_;
  model::FeatureTaps taps_;
  at::Device device_;
  bool typical_;
};

}  // namespace clover::infer
