#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "model/cache/placement.h"
#include "model/cache/prefix_pages.h"
#include "model/cache/rotary_table.h"
#include "model/cache/row_batch.h"

namespace clover::model {

/// The layout of a KvCache, and how its layers rotate keys.
struct KvShape {
  int64_t layers;    // the target's and, after them, the drafter's own
  int64_t kv_heads;  // Hkv
  int64_t head_dim;  // d
  at::ScalarType dtype;
  std::vector<double> frequencies;  // Rotation::frequencies of the target's layers
  at::Device device = at::kCPU;
  double rotary_scale = 1;  // Rotation::scale
  // Rotation::frequencies_at: the inverse frequencies for a text of `length` tokens.
  std::function<std::vector<double>(int64_t length)> frequencies_at = {};
  // Rotation::fixed_rotation_length: texts of up to so many tokens rotate by `frequencies`.
  int64_t fixed_rotation_length = std::numeric_limits<int64_t>::max();
};

/// Paged keys and values of many sequences of different lengths.
///
/// A sequence has `length` committed tokens.  The rows of a pass are written after them, and `keep_rows`
/// commits those that are accepted.  Slots are numbered in two ways: a *sequence slot* counts from the
/// sequence's first token, so that committed tokens are in 0 .. length - 1; a *cache slot* is
/// page * page_size + row within the page.  The functions of this class take and return cache slots.
///
/// Full pages are never written again.  Once a sequence has published its pages, other sequences that begin
/// with the same tokens share them.  A published page that no open sequence uses is idle.  Idle pages stay
/// until the memory is needed, up to a share of the cache (PrefixPages::evict_surplus).  Where only the
/// first tokens of a page agree, its rows are copied to a page of the sequence's own.  prefix_pages.h has the
/// index of published pages.
class KvCache {
 public:
  KvCache(KvShape shape, int64_t pages, int64_t page_size);

  static int64_t bytes_per_page(const KvShape& shape, int64_t page_size);

  /// Opens a new, empty sequence and returns its number.  `prompt_length` is in tokens: dynamic RoPE rotates
  /// rows of the prompt as in a text of that length, in whichever chunk they are prefilled.
  int32_t open(int64_t prompt_length = 0);
  /// Frees the sequence's pages.  Published ones become idle: they can be shared until they are evicted.
  void close(int32_t sequence);

  /// Makes the sequence use the published pages that hold the beginning of its prompt `ids`.  It must have no
  /// pages other than shared ones; it may be called again, when more pages may have been published.
  /// Returns how many tokens of the sequence are committed now: a multiple of the page size, and less than
  /// ids.size(), because the last token must be computed for its logits.
  int64_t share_prefix(int32_t sequence, std::span<const int64_t> ids);

  /// How many rows copy_page_rows would copy if a page is free.
  int64_t copyable_page_rows(int32_t sequence, std::span<const int64_t> ids) const;
  /// Follows share_prefix.  Finds the published page whose first tokens are the next ones of `ids`, and
  /// copies their rows to a new page of this sequence, if one is free.  Returns how many tokens are committed
  /// now.
  int64_t copy_page_rows(int32_t sequence, std::span<const int64_t> ids);

  /// Publishes the pages of `ids`, the sequence's first committed tokens: others may share the full pages and
  /// copy from the last one.  The drafter's layers must have their keys and values already.
  void publish(int32_t sequence, std::span<const int64_t> ids);
  int64_t length(int32_t sequence) const { return sequences_[sequence].length; }

  /// How many more pages `sequence` needs for `rows` more rows.
  int64_t missing_pages(int32_t sequence, int64_t rows) const;
  /// Whether enough pages are free for `rows` more rows.
  bool fits(int32_t sequence, int64_t rows) const { return missing_pages(sequence, rows) <= free_pages(); }
  /// Pages that can be taken, idle ones included.
  int64_t free_pages() const { return static_cast<int64_t>(unused_pages_.size()) + prefixes_.idle_pages(); }
  /// Committed tokens of all open sequences.  Tokens of shared pages count once.
  int64_t tokens() const;
  int64_t pages() const { return pages_; }          // used or not
  int64_t page_size() const { return page_size_; }  // in tokens

  /// Slots, rotations and paths for a pass of the target, as CPU tensors.  Takes the pages that the rows
  /// need; c10::Error when too few are free (`fits` tells that before).
  Placement place(const RowBatch& batch);

  /// The same for rows that a drafter reads, in its own layers.  These rows are committed already, or the
  /// next keep_rows commits them.  In either case their slots are those of their positions in the text.
  /// `guess_slots`: how many more slots to reserve after each segment, for rows of guesses until the next
  /// `commit`; c10::Error when too few pages are free.  `drafter_rotation`: the rotation of the drafter's
  /// layers; null if it is the target's.
  Placement place(std::span<const Segment> segments, int64_t guess_slots = 0,
                  RotaryTable* drafter_rotation = nullptr);

  /// A cache slot that belongs to no sequence, where padding rows write.  Only on a GPU.
  int64_t padding_slot() const { return pages_ * page_size_; }

  /// Commits rows of the last pass and frees the pages that are not needed any more.
  /// `kept`: indices among the sequence's rows of that pass; they ascend, and are a path from the root. Their
  /// keys and values move to the slots right after the committed tokens, in the first `layers` layers of the
  /// cache: the target's, as the drafter's own come last.
  void keep_rows(int32_t sequence, std::span<const int32_t> kept, int64_t layers) {
    const KeptRows kept_rows{sequence, kept};
    keep_rows({&kept_rows, 1}, layers);
  }
  /// The same for several sequences, each at most once.
  struct KeptRows {
    int32_t sequence;
    std::span<const int32_t> rows;
  };
  void keep_rows(std::span<const KeptRows> kept, int64_t layers) {
    compact(moves_of(kept), layers);
    commit(kept);
  }

  /// The first half of keep_rows: moves keys and values.  Called by itself where a GPU finds the accepted
  /// rows.
  ///   moves  i64 [3, M] on the cache's device: from slot, to slot, sequence (kernels::move_rows)
  void compact(const at::Tensor& moves, int64_t layers);
  /// The second half: counts the rows as committed and frees pages.
  void commit(std::span<const KeptRows> kept);

  /// Appends the cache slots of the sequence's first `rows` rows of the last pass to `slots`.
  void append_slots(int32_t sequence, int64_t rows, std::vector<int64_t>& slots) const;

  /// Keys of a layer, [pages, Hkv, page_size, d]; on a GPU one page more.
  at::Tensor keys(int64_t layer) const { return layer_views_[2 * layer]; }
  /// Values of a layer, the same shape.
  at::Tensor values(int64_t layer) const { return layer_views_[2 * layer + 1]; }
  const KvShape& shape() const { return shape_; }

 private:
  struct Sequence {
    std::vector<int32_t> pages;      // page numbers, in order
    int64_t length = 0;              // committed tokens
    int64_t published_pages = 0;     // full pages that are published, from the first on
    bool partial_published = false;  // the page after these is published too, though not full
    bool open = false;
    int64_t prompt_length = 0;  // tokens (`open`)
  };
  /// Whether keys of the prompt depend on its length, so that no other sequence can share them.
  bool rotates_by_prompt(const Sequence& sequence) const {
    return sequence.prompt_length > shape_.fixed_rotation_length;
  }
  /// The published page whose rows can be copied to continue the sequence, which has full pages only.
  PrefixPages::PartialMatch partial_match(const Sequence& sequence, std::span<const int64_t> ids) const;
  /// The moves of `compact` that commit these rows.
  at::Tensor moves_of(std::span<const KeptRows> kept) const;
  int32_t take_page();
  /// Takes pages until the sequence has at least `slots` slots.
  void reserve(Sequence& sequence, int64_t slots);
  int64_t cache_slot(const Sequence& sequence, int64_t sequence_slot) const {
    return static_cast<int64_t>(sequence.pages[sequence_slot / page_size_]) * page_size_ +
           sequence_slot % page_size_;
  }
  /// i32 [sequences, pages of the longest], padded with 0.
  at::Tensor page_table(std::span<const int32_t> sequences) const;

  KvShape shape_;
  int64_t pages_;
  int64_t page_size_;
  // [2 * layers, pages, Hkv, page_size, d]: keys of layer 0, its values, keys of layer 1, ..  A GPU has one
  // page more, for padding_slot.
  at::Tensor storage_;
  std::vector<at::Tensor> layer_views_;    // of storage_: each layer's keys, then its values
  std::vector<Sequence> sequences_;        // by number
  RotaryTable rotary_;                     // of the target's layers
  std::vector<int32_t> closed_sequences_;  // numbers that `open` uses again
  std::vector<int32_t> unused_pages_;      // page numbers; the last one is taken next
  PrefixPages prefixes_;
};

}  // namespace clover::model
