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

/// What verification needs of a pass, on the CPU: the target's token after every row where a GPU has chosen
/// them or all are the most probable ones, or the logits.
struct Verdict {
  at::Tensor logits;  // fp32 [R, V]
  at::Tensor tokens;  // i64 [R]; -1: the logits are no numbers
};

/// A pass of the target over a tree of each of some sequences, and over what others read that join.
struct DecodePass {
  std::vector<LiveSequence*> sequences;
  std::vector<CandidateTree> trees;  // their rows stand one behind the other
  std::vector<int64_t> contexts;     // tokens of each that were cached before
  std::vector<PromptChunk> chunks;   // their rows stand behind the trees'
  model::TargetOutput output;        // until the next pass; where tokens are drawn, without the logits
  bool controlled = false;           // some sequence's logits are edited before tokens are chosen
  bool typical = true;               // takes as long as the next of its shape, and reads nothing besides
  enum class Kept {
    nothing,
    moved,  // keys and values of accepted rows stand together
    all,    // .. and are committed
  } kept = Kept::nothing;
  Verdict said;  // of all rows of trees and the last one of each last chunk, once it has been waited for
  double seconds = 0;    // until then, the choice of tokens included
  double taking_in = 0;  // seconds of the CPU, or of drafters there, for its chunks

  // On a GPU that chooses them:
  at::Tensor tokens;  // there, until the next pass; of one begun behind another for as long as it lives
  kernels::Arriving arriving;
  std::unique_ptr<kernels::Moment> begun;
  double recording = 0;                      // of `seconds` not: a graph of its shape
  std::optional<std::vector<int64_t>> rows;  // that are left of those that `said` would tell of
  bool own_features = false;                 // not those that the next pass overwrites

  bool plain() const;         // roots alone
  bool ends_prompts() const;  // there are last chunks
  int64_t tree_rows() const;
  int64_t chunk_rows() const;
  /// Rows of the pass that `said` tells of, ascending.
  std::vector<int64_t> wanted() const;
};

/// Runs them: on a CPU they are over when they have begun.
class DecodePasses {
 public:
  /// All but `taps`, which passes are made with, are borrowed.  `typical`: verification needs the logits.
  DecodePasses(const model::Target& target, model::KvCache& cache, model::PassGraphs& passes,
               const model::Recorder& recorder, model::FeatureTaps taps, bool typical)
      : cache_(cache),
        passes_(passes),
        recorder_(recorder),
        taps_(taps),
        device_(target.device()),
        typical_(typical) {}

  /// Whether a GPU chooses the tokens, so that the CPU need not be asked before it goes on.
  bool chooses_there() const { return !device_.is_cpu() && !typical_; }

  DecodePass begin(std::vector<LiveSequence*> sequences, std::vector<CandidateTree> trees,
                   std::vector<PromptChunk> chunks = {});

  /// Whether an answer has tokens behind the next one, as far as their number says it.
  static bool goes_on(const LiveSequence& live) { return live.tokens_left() > 1; }

  /// Behind `pass`, of roots alone, whose tokens nobody has waited for: a pass over the token after each
  /// root, whatever it is, of the sequences that go on, one or more, and over `chunks`.  The cache holds what
  /// `pass` computed then.  Each sequence knows its row, or that it is read (LiveSequence::ahead).
  DecodePass begin_behind(DecodePass& pass, std::vector<PromptChunk> chunks = {});

  /// Leaves these of its rows, ascending, of a pass of roots alone, and these of its chunks.
  void leave(DecodePass& pass, std::span<const int64_t> rows, std::span<const int64_t> chunks) const;

  /// Of the features those of wanted rows are left, where no other pass writes to.
  void keep_features(DecodePass& pass) const;

  /// Until it is known what the target said.
  void wait(DecodePass& pass) const;

 private:
  DecodePass begin(std::vector<LiveSequence*> sequences, std::vector<CandidateTree> trees,
                   std::vector<PromptChunk> chunks, const at::Tensor& first_ids);
  void begin_there(DecodePass& pass, const model::RowBatch& batch, const at::Tensor& first_ids) const;
  void run_here(DecodePass& pass, const model::RowBatch& batch) const;

  model::KvCache& cache_;
  model::PassGraphs& passes_;
  const model::Recorder& recorder_;
  model::FeatureTaps taps_;
  at::Device device_;
  bool typical_;
};

}  // namespace clover::infer
