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

struct KvShape {
  int64_t layers;  // the target's and, behind them, the drafter's own
  int64_t kv_heads;
  int64_t head_dim;
  at::ScalarType dtype;
  std::vector<double> frequencies;  // inverse frequencies of RoPE, [d/2]
  at::Device device = at::kCPU;
  double rotary_scale = 1;  // factor of cosines and sines (attention scaling of scaled RoPE)
  /// Dynamic and long RoPE: a row rotates by `frequencies` while its text has at most fixed_rotation_length
  /// tokens when it is computed, else by frequencies_at(the text's length then).
  std::function<std::vector<double>(int64_t length)> frequencies_at = {};
  int64_t fixed_rotation_length = std::numeric_limits<int64_t>::max();
};

/// Paged keys and values of many sequences of different lengths.  A sequence has `length` committed tokens in
/// slots 0 .. length-1 of its own (as in AttentionRows); the rows of a pass are written behind them, and
/// `keep` commits those that are accepted.  Slots of Placement::slots, moves, add_slots and spare_slot are
/// those of the whole cache: page * page_size + row of the page.  Full pages are never written again, so
/// sequences that begin with the same tokens share them once one has published them; they stay when their
/// sequences are closed, until the room is needed.  Where only the first tokens of a page agree, their rows
/// are copied to a page of the sequence's own (prefix_pages.h).
class KvCache {
 public:
  KvCache(KvShape shape, int64_t pages, int64_t page_size);

  static int64_t bytes_per_page(const KvShape& shape, int64_t page_size);

  /// A new, empty sequence.  Dynamic RoPE rotates its prompt as a text of `prompt_length` tokens in however
  /// many passes it is prefilled.
  int32_t open(int64_t prompt_length = 0);
  /// Frees the sequence's pages; published ones become idle, which means shareable until they are evicted
  /// (prefix_pages.h).
  void close(int32_t sequence);

  /// Lets a sequence use the published pages that hold the beginning of `ids`.  It has no pages yet but those
  /// that it shares already: more may have been published since.
  /// Returns how many tokens it has committed now: a multiple of the page size, below ids.size(), because the
  /// last token's logits are wanted.
  int64_t share(int32_t sequence, std::span<const int64_t> ids);

  /// How many rows copy_page_rows copies where a page is free.
  int64_t copyable_page_rows(int32_t sequence, std::span<const int64_t> ids) const;
  /// Copies the rows of the next tokens of `ids` from a published page that begins with them, to a page of
  /// the sequence's own if one is free.  Returns how many tokens the sequence has committed now.
  int64_t copy_page_rows(int32_t sequence, std::span<const int64_t> ids);

  /// Lets other sequences share the full pages of `ids`, the committed tokens from the beginning, and copy
  /// from the last page.  The drafter's layers must hold their keys and values already.
  void publish(int32_t sequence, std::span<const int64_t> ids);
  int64_t length(int32_t sequence) const { return sequences_[sequence].length; }

  /// Pages that `sequence` lacks to hold `rows` more rows.
  int64_t missing_pages(int32_t sequence, int64_t rows) const;
  /// Whether the pages that it lacks are free.
  bool fits(int32_t sequence, int64_t rows) const { return missing_pages(sequence, rows) <= free_pages(); }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()) + prefixes_.idle(); }
  /// Committed tokens of all open sequences, shared ones counted once.
  int64_t tokens() const;
  int64_t pages() const { return pages_; }
  int64_t page_size() const { return page_size_; }

  /// Slots, positions and paths for a pass of the target, on the CPU; takes the pages it needs.  c10::Error
  /// when they do not suffice (ask `fits` first).
  Placement place(const RowBatch& batch);

  /// The same for rows of the drafter's own layers.  They are committed, or `keep` is about to commit them
  /// and they get the slots that they will have after it.  Reserves `room` further slots behind each segment,
  /// which rows of guesses may use until the next `commit`; c10::Error when the pages do not suffice.
  /// `own_rotation`: how these layers rotate where they do not as the target's.
  Placement place(std::span<const Segment> segments, int64_t room = 0, RotaryTable* own_rotation = nullptr);

  /// A slot that belongs to no sequence, for padding rows; only on a GPU.
  int64_t spare_slot() const { return pages_ * page_size_; }

  /// Commits rows of the last pass: `kept` are indices among the sequence's rows of that pass, ascending, a
  /// path from the root.  Their keys and values move together behind the committed ones, in the first
  /// `layers` layers (the drafter's own come last); pages no longer needed are freed.
  void keep(int32_t sequence, std::span<const int32_t> kept, int64_t layers) {
    const Kept one{sequence, kept};
    keep({&one, 1}, layers);
  }
  /// The same for several sequences, each at most once.
  struct Kept {
    int32_t sequence;
    std::span<const int32_t> rows;
  };
  void keep(std::span<const Kept> all, int64_t layers) {
    move(moves_of(all), layers);
    commit(all);
  }

  /// The first half of `keep`, for a GPU that finds the accepted rows by itself: moves keys and values.
  ///   moves i64 [3, M] on its device: from slot, to slot, sequence (kernels::move_rows keeps the order
  ///   within one)
  void move(const at::Tensor& moves, int64_t layers);
  /// The second half: counts the rows as committed and frees the pages behind them.
  void commit(std::span<const Kept> all);

  /// Appends the slots of the sequence's first `rows` rows of the last pass.
  void add_slots(int32_t sequence, int64_t rows, std::vector<int64_t>& slots) const;

  /// [pages (on a GPU one more), Hkv, page_size, d]
  at::Tensor keys(int64_t layer) const { return layer_views_[2 * layer]; }
  /// The same shape.
  at::Tensor values(int64_t layer) const { return layer_views_[2 * layer + 1]; }
  const KvShape& shape() const { return shape_; }

 private:
  struct Sequence {
    std::vector<int32_t> pages;
    int64_t length = 0;
    int64_t published = 0;           // how many of its pages, from the first on, are published
    bool partial_published = false;  // the page behind these is published too, though not full
    bool open = false;
    int64_t prompt_length = 0;  // dynamic RoPE rotates all of the prompt as one text
  };
  /// Whether the keys depend on the prompt's length, so that no other sequence can share them.
  bool rotates_by_prompt(const Sequence& sequence) const {
    return sequence.prompt_length > shape_.fixed_rotation_length;
  }
  PrefixPages::PartialMatch partial_match(const Sequence& sequence, std::span<const int64_t> ids) const;
  at::Tensor moves_of(std::span<const Kept> all) const;
  int32_t take_page();
  void reserve(Sequence& sequence, int64_t slots);
  int64_t slot_in_cache(const Sequence& sequence, int64_t own_slot) const {
    return static_cast<int64_t>(sequence.pages[own_slot / page_size_]) * page_size_ + own_slot % page_size_;
  }
  at::Tensor page_table(std::span<const int32_t> sequences) const;

  KvShape shape_;
  int64_t pages_;
  int64_t page_size_;
  // [2 * layers, pages, Hkv, page_size, d]: keys of layer 0, its values, keys of layer 1, ..  On a GPU one
  // page more, for spare_slot.
  at::Tensor rows_;
  std::vector<at::Tensor> layer_views_;  // of rows_: each layer's keys, then its values
  std::vector<Sequence> sequences_;
  RotaryTable rotary_;           // of the target's layers
  std::vector<int32_t> closed_;  // sequence numbers to use again
  std::vector<int32_t> free_;    // page numbers, the next one last
  PrefixPages prefixes_;
};

}  // namespace clover::model
