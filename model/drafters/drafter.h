#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "kernels/weights/packed_weight.h"
#include "model/cache/kv_cache.h"
#include "model/cache/row_batch.h"
#include "model/drafters/module.h"
#include "model/target/target.h"

namespace clover::model {

/// The state of a draft at its F frontier rows: a guess is wanted after each of them.
struct DraftState {
  at::Tensor hidden;     // fp32 [F, W], which `head_input` reads; W depends on the kind and the depth
  int64_t depth = 0;     // how many guesses were fed: 0 after `prime`
  at::Tensor rounded{};  // `hidden` in the frozen dtype if a kernel has computed that, too, else undefined
  std::vector<at::Tensor> row_tensors{};   // what else the kind keeps for each row, each [F, ..]
  std::vector<at::Tensor> call_tensors{};  // what it keeps of the call of `prime`, the same for all rows

  /// The state of the rows `index`, i64 [F'] on its device.
  DraftState rows(const at::Tensor& index) const;
};

/// The matrix that turns a head's input [F, D] into logits [F, V']: the target's LM head or the drafter's
/// own.  Logit j is that of token token_map[j], or of token j if there is no map.  guesses_of
/// (model/graphs/guesses.h) applies the map.  The import of EAGLE-3 heads turns their d2t into such a map.
struct OutputHead {
  int64_t outputs = 0;           // V'
  kernels::PackedWeight packed;  // [V', D] for inference; of a drafter's own head only while it is frozen
  at::Tensor bias;  // fp32 [V'], added to the logits, or undefined; defined only when `packed` is
  // For training, else undefined: weight [V', D] and bias [V'].  Parameters if the head is the drafter's own.
  at::Tensor dense, dense_bias;
  at::Tensor token_map;  // i64 [V'] ascending, on the target's device, or undefined

  bool trainable() const { return dense.defined() && dense.requires_grad(); }
};

/// For drafters that decode with a KV cache: the drafter's own layers of the target's cache, and where a
/// draft writes to them.
struct DraftKv {
  KvCache* cache;
  int64_t first_layer;
  Placement
      placement;  // of the rows that `prime` reads, on the drafter's device; undefined if kv_layers() is 0
  int64_t guess_slots = 0;  // cache slots after each sequence's rows, for the guesses that `extend` writes
  /// i32 [1] on the device: how many rows of `extend` are real; those after them are padding.  Undefined:
  /// all.
  at::Tensor real_row_count{};
};

/// The light model that guesses the target's next tokens.  It scores guesses; model/graphs/draft_runner.h
/// builds trees of them.  Training and inference call the same functions; training passes no DraftKv, and may
/// draft from every row.
///
/// Row t has the target's feature at position t and the token x[t+1] after it.  The guess at depth i is for
/// x[t+2+i].
class Drafter : public Module {
 public:
  virtual std::string kind() const = 0;
  /// The features of the target that `prime` reads.
  virtual FeatureTaps taps() const = 0;
  /// How many consecutive tokens it can guess.
  virtual int64_t max_depth() const = 0;
  /// How many consecutive tokens `clover-train fit` trains it to guess; also the default depth of drafts.
  /// Recurrent kinds can guess more.
  virtual int64_t trained_depth() const { return max_depth(); }
  /// How many layers of its own it has in the KV cache.
  virtual int64_t kv_layers() const { return 0; }
  /// The RoPE of these layers; null: the target's.
  virtual const Rope* own_rope() const { return nullptr; }
  /// Whether a guess depends on the ids given to `extend`.
  virtual bool autoregressive() const { return true; }
  /// Whether `extend` writes keys and values of guesses to the drafter's own layers, at DraftKv::guess_slots.
  virtual bool writes_guesses() const { return false; }

  /// Reads R rows of the target and returns the state at `frontier`, from which head 0 guesses.
  ///   features  of the R rows, in the order of the segments
  ///   next_ids  i64 [R], the token after each row
  ///   segments  for training: the rows by sequence, each from position 0.  Unused with `kv`
  ///   frontier  i64 [F], the rows to draft from
  ///   kv        for decoding: its placement says which earlier rows each row attends to.  Null in training
  /// All tensors are on the target's device.
  /// Decoding calls of prime, head_input and extend are captured as CUDA graphs.  So they must not copy
  /// between CPU and GPU, and from call to call only the values of tensors may change.
  virtual DraftState prime(const Features& features, const at::Tensor& next_ids,
                           std::span<const Segment> segments, const at::Tensor& frontier, DraftKv* kv) = 0;

  /// What the matrix of head(state.depth) multiplies to guess one token for each row: [F, D], fp32 or the
  /// frozen dtype.
  virtual at::Tensor head_input(const DraftState& state) = 0;

  /// The state one token deeper, of F' rows: row j continues row parents[j] of `state` with token ids[j],
  /// both i64 [F'].  `kv` as in `prime`.
  virtual DraftState extend(const DraftState& state, const at::Tensor& parents, const at::Tensor& ids,
                            DraftKv* kv) = 0;

  /// The target's LM head, or its rows for the draft vocabulary, or a matrix of the drafter's own.
  virtual const OutputHead& head(int64_t /*depth*/) const { return head_; }
  at::Device device() const { return target_.head->device(); }

  /// All settings, as make_drafter takes them: the "drafter" object of config.json.
  const nlohmann::json& settings() const { return settings_; }

  /// Packs the weights in `dtype` for inference.  Until `thaw`, calls use the packed weights, on kernels
  /// whose rows do not depend on each other, without autograd.
  void freeze(at::ScalarType dtype);
  void thaw();
  bool frozen() const { return frozen_; }

  /// Sets the dtype of the factors of products in training.  Sums and norms stay in fp32.
  void set_training_dtype(at::ScalarType dtype) { training_dtype_ = dtype; }

 protected:
  /// For a kind that guesses with the target's LM head: calls share_lm_head.
  Drafter(const TargetView& target, const at::Tensor& token_map, bool trainable);
  /// For a kind that calls share_lm_head later, or overrides `head`.
  explicit Drafter(const TargetView& target) : target_(target) {}
  /// Makes head_ the target's LM head, or its rows for `token_map`.
  void share_lm_head(const at::Tensor& token_map, bool trainable);

  /// The target's input embedding of tokens i64 [F]: fp32 [F, H].
  at::Tensor input_embedding(const at::Tensor& ids) const {
    return target_.embedding->rows(ids).to(at::kFloat);
  }

  TargetView target_;
  OutputHead head_;
  bool frozen_ = false;
  at::ScalarType training_dtype_ = at::kFloat;

 private:
  friend std::shared_ptr<Drafter> make_drafter(const std::string& kind, const nlohmann::json& settings,
                                               const TargetView& target, const at::Tensor& token_map,
                                               bool trainable, uint64_t seed);
  nlohmann::json settings_;
};

/// Makes a drafter of `kind` on the target's device.  Initial weights that are random are drawn from `seed`.
/// `settings`: the "drafter" object of config.json; missing keys take their defaults, unknown ones are an
/// InputError.  token_map: i64 [V'] ascending, undefined for the whole vocabulary.  `trainable`: whether to
/// keep OutputHead::dense, which training needs.
std::shared_ptr<Drafter> make_drafter(const std::string& kind, const nlohmann::json& settings,
                                      const TargetView& target, const at::Tensor& token_map, bool trainable,
                                      uint64_t seed);
/// The names of all kinds: "clover", ..
std::vector<std::string> drafter_kinds();

}  // namespace clover::model
