#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "infer/engine/engine_options.h"
#include "infer/engine/live_sequence.h"
#include "infer/tree/candidate_tree.h"
#include "kernels/gpu/gpu.h"
#include "kernels/vocabulary/sample.h"
#include "model/cache/kv_cache.h"
#include "model/graphs/pass_graphs.h"
#include "model/target/target.h"

namespace clover::infer {

/// The target's next token after each of W rows, on the CPU.  Only one member is defined: `tokens` where a
/// GPU has sampled them, arg-maxima suffice or answers are recorded, else `logits`, from which verification
/// samples the tokens.
struct TargetTokens {
  at::Tensor tokens;  // i64 [W]; -1: no token can be chosen, because logits are NaN or all tokens are banned
  at::Tensor logits;  // fp32 [W, V]
};

/// What has been done in the KV cache with the accepted rows of a pass.
enum class CommitState {
  pending,    // nothing: their keys and values are in the slots that the pass wrote
  compacted,  // moved to the slots right after the committed tokens (KvCache::compact)
  committed,  // moved, and counted as committed tokens (KvCache::commit)
};

/// A pass of the target over one tree for each of S decoding sequences, and over prefill chunks of others. It
/// has R rows, and tokens are chosen after W of them (wanted_rows).
struct DecodePass {
  std::vector<LiveSequence*> sequences;  // [S] those that decode
  std::vector<CandidateTree> trees;      // [S]; their rows come first in the pass, tree after tree
  std::vector<int64_t> context_lengths;  // [S] cached tokens before the pass
  std::vector<PrefillChunk> chunks;      // their rows follow those of the trees
  bool edits_logits = false;             // a request's controls change logits before tokens are chosen
  /// Whether other passes of its shape take as long: it is not the first of its shape, and prefills nothing.
  bool representative = true;
  CommitState commit_state = CommitState::pending;

  model::TargetOutput output;  // the next pass overwrites it; has no logits where a GPU samples
  TargetTokens target_tokens;  // set when PassRunner::wait returns
  double seconds = 0;          // from the launch until the tokens are on the CPU, sampling included
  double prefill_seconds = 0;  // CPU time of Engine::commit_prefill

  // Set where a GPU samples the tokens:
  at::Tensor device_tokens;         // i64 [W] on the GPU; the next pass may overwrite it
  kernels::PendingCopy token_copy;  // of device_tokens to the CPU
  std::unique_ptr<kernels::GpuEvent> launch_event;
  double capture_seconds = 0;  // spent on capturing a CUDA graph of it; not part of `seconds`
  /// Set by PassRunner::retain: the indices into token_copy of the rows that are still in the pass.
  std::optional<std::vector<int64_t>> retained_indices;
  bool owns_features = false;  // output.features is a copy [W, ..] that later passes do not overwrite

  bool plain() const;         // each tree is only a root
  bool ends_prompts() const;  // a chunk is the last one of its sequence
  int64_t tree_rows() const;
  int64_t chunk_rows() const;
  /// [W] the rows after which the target's token is needed, ascending: all rows of trees, and the last row of
  /// each PrefillChunk::last.
  std::vector<int64_t> wanted_rows() const;
};

/// Runs passes.  On a GPU `begin` launches one and `wait` waits for its tokens; on a CPU, and where
/// answers are recorded, `begin` does both.
class PassRunner {
 public:
  /// `taps`: the features that each pass returns; all else is borrowed.
  PassRunner(const model::Target& target, model::KvCache& cache, model::PassGraphs& passes,
             const model::GraphRunner& graph_runner, model::FeatureTaps taps, const EngineOptions& options)
      : cache_(cache),
        pass_graphs_(passes),
        graph_runner_(graph_runner),
        taps_(taps),
        device_(target.device()),
        options_(options) {}

  /// Whether the GPU samples tokens, so that it can begin more work before the CPU knows them.  Typical
  /// acceptance needs the logits on the CPU.
  bool samples_on_device() const {
    return !device_.is_cpu() && !options_.typical && !options_.recorded_answers;
  }

  /// Begins a pass over trees[i] of sequences[i], and over `chunks`.
  DecodePass begin(std::vector<LiveSequence*> sequences, std::vector<CandidateTree> trees,
                   std::vector<PrefillChunk> chunks = {});

  /// Whether max_tokens allows the sequence at least one token after the one of the pass under way.
  static bool continues(const LiveSequence& live) { return live.tokens_left() > 1; }

  /// Launches the next pass on the GPU before the CPU knows the tokens of `pass`, which must be plain.
  /// The rows of the next pass are those tokens, for each sequence that continues (one or more), and
  /// `chunks`.  Commits the rows of `pass`.
  DecodePass begin_next(DecodePass& pass, std::vector<PrefillChunk> chunks = {});

  /// Removes all but the given sequences and chunks from a plain pass; both are ascending indices.
  void retain(DecodePass& pass, std::span<const int64_t> sequences, std::span<const int64_t> chunks) const;

  /// Replaces the features of the pass by a copy of those of wanted_rows(), which later passes do not
  /// overwrite (owns_features).
  void copy_wanted_features(DecodePass& pass) const;

  /// Waits for the pass's tokens, if it has any, and sets `target_tokens` and `seconds`.
  void wait(DecodePass& pass) const;

 private:
  /// `first_ids`: i64 [n] on the device, the tokens of the first n rows in place of those of the trees; may
  /// be undefined.
  DecodePass begin(std::vector<LiveSequence*> sequences, std::vector<CandidateTree> trees,
                   std::vector<PrefillChunk> chunks, const at::Tensor& first_ids);
  void launch_on_device(DecodePass& pass, const model::RowBatch& batch, const at::Tensor& first_ids) const;
  void run_and_wait(DecodePass& pass, const model::RowBatch& batch) const;
  void read_recorded(DecodePass& pass, const model::RowBatch& batch) const;

  model::KvCache& cache_;
  model::PassGraphs& pass_graphs_;
  const model::GraphRunner& graph_runner_;
  model::FeatureTaps taps_;
  at::Device device_;
  const EngineOptions& options_;
};

}  // namespace clover::infer
