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

/// The state of a draft at its F frontier rows, the rows to draft from.
struct DraftState {
  at::Tensor hidden;     // fp32 [F, W]: what `head_input` reads; its width W is the kind's
  int64_t depth = 0;     // guesses already fed: 0 right after `prime`
  at::Tensor rounded{};  // `hidden` in the frozen dtype where a kernel yields it as well, else undefined
  std::vector<at::Tensor> carried{};  // whatever else the kind needs of each row, [F, ..] each
  std::vector<at::Tensor> shared{};   // what it needs of the whole call of `prime`, the same for all rows

  /// The state of these rows alone: i64 [F'] on its device.
  DraftState rows(const at::Tensor& index) const;
};

/// The vocabulary product of a head.  Index j of its logits is token token_map[j], or j itself without a map,
/// which guesses_of (model/graphs/guesses.h) applies.  EAGLE-3's d2t becomes such a map at import.
struct OutputHead {
  int64_t outputs = 0;           // V'
  kernels::PackedWeight packed;  // [V', D] in the model's dtype; of a drafter's own head only while frozen
  at::Tensor bias;               // fp32 [V'] that is added to the logits, or undefined; as `packed`
  // For training: weight [V', D] and bias [V'], which are parameters if the head is the drafter's own.
  at::Tensor dense, dense_bias;  // undefined in drafters made for inference alone
  at::Tensor token_map;          // i64 [V'] ascending, on the target's device, or undefined

  bool trainable() const { return dense.defined() && dense.requires_grad(); }
};

/// A drafter's own layers of the target's cache, and where the rows of a draft go in them.
struct DraftKv {
  KvCache* cache;
  int64_t first_layer;
  Placement placement;  // of the rows that `prime` reads, on the drafter's device; undefined for a drafter
                        // without such layers
  int64_t guess_slots = 0;  // behind each sequence's rows, for those that `extend` writes
  /// i32 [1] on the device: rows of `extend` from there on are padding; undefined: none is.
  at::Tensor real_row_count{};
};

/// A drafter scores guesses; it never builds trees or samples.  Training and inference call the same
/// functions; training passes no DraftKv and may draft from every row.
///
/// Geometry: row t carries the target's feature at t and the token x[t+1]; the guess at depth i is for
/// x[t+2+i].
class Drafter : public Module {
 public:
  virtual std::string kind() const = 0;
  virtual FeatureTaps taps() const = 0;
  virtual int64_t max_depth() const = 0;  // how many tokens ahead it can guess at all
  /// The depth that `fit` trains and that drafts reach by default; recurrent kinds can go deeper.
  virtual int64_t trained_depth() const { return max_depth(); }
  virtual int64_t kv_layers() const { return 0; }  // layers of its own in the cache
  /// The rotation of these layers; null: the target's.
  virtual const Rope* own_rope() const { return nullptr; }
  /// Whether a guess depends on the ids given to `extend`.
  virtual bool autoregressive() const { return true; }
  /// Whether `extend` writes keys and values of guesses to the drafter's own layers: then DraftKv has
  /// guess_slots.
  virtual bool writes_guesses() const { return false; }

  /// Reads the target's rows and returns the state at `frontier`, from which head 0 guesses.
  /// features: [R, ..] of the rows of all segments, in order; next_ids i64 [R]: the token after each;
  /// frontier i64 [F]: the rows to draft from; all on the target's device.  With `kv` (decoding) its
  /// placement says what the rows continue; without (training), each of `segments` begins at 0.  Decoding
  /// calls of this, `head_input` and `extend` are captured as CUDA graphs: of what they read, only the
  /// tensors may change from call to call, and they copy nothing from or to the CPU.
  virtual DraftState prime(const Features& features, const at::Tensor& next_ids,
                           std::span<const Segment> segments, const at::Tensor& frontier, DraftKv* kv) = 0;

  /// [F, D], fp32 or the frozen dtype: the input of head(state.depth)'s product, which guesses one token a
  /// row.
  virtual at::Tensor head_input(const DraftState& state) = 0;

  /// One token deeper: row j continues row parents[j] of `state` with token ids[j].  Both i64 [F'].  `kv`: as
  /// given to `prime`.
  virtual DraftState extend(const DraftState& state, const at::Tensor& parents, const at::Tensor& ids,
                            DraftKv* kv) = 0;

  /// The target's LM head, maybe of the draft vocabulary alone, or the kind's own.
  virtual const OutputHead& head(int64_t /*depth*/) const { return head_; }
  at::Device device() const { return target_.head->device(); }

  /// All its settings, as `make_drafter` takes them: the "drafter" object of config.json.
  const nlohmann::json& settings() const { return settings_; }

  /// Packs the present weights in `dtype` for inference; until `thaw`, calls run on the row-independent
  /// kernels without autograd.  `thaw` returns to the trainable weights.
  void freeze(at::ScalarType dtype);
  void thaw();
  bool frozen() const { return frozen_; }

  /// Products of training calls in `dtype` (bf16 where the machine multiplies it faster); sums and norms stay
  /// fp32.
  void set_training_dtype(at::ScalarType dtype) { training_dtype_ = dtype; }

 protected:
  /// Takes over the target's LM head.
  Drafter(const TargetView& target, const at::Tensor& token_map, bool trainable);
  /// For a kind that calls share_lm_head, or whose `head` is its own.
  explicit Drafter(const TargetView& target) : target_(target) {}
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

/// Makes a drafter of `kind` with initial weights, drawn from `seed` and lying on the target's device.
/// `settings` as `Drafter::settings`; missing keys take their defaults, unknown ones are an InputError.
/// token_map: i64 [V'] ascending, undefined for the whole vocabulary.  `trainable`: also keeps what training
/// needs (a dense head).
std::shared_ptr<Drafter> make_drafter(const std::string& kind, const nlohmann::json& settings,
                                      const TargetView& target, const at::Tensor& token_map, bool trainable,
                                      uint64_t seed);
std::vector<std::string> drafter_kinds();  // "clover", .. (factory.cc)

}  // namespace clover::model
