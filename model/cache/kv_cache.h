#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "model/cache/placement.h"
#include "model/cache/prefix_pages.h"
#include "model/cache/row_batch.h"

namespace clover::model {

struct KvShape {
  int64_t layers;  // the target's and, behind them, the drafter's own
  int64_t kv_heads;
  int64_t head_dim;
  at::ScalarType dtype;
  std::vector<double> frequencies;  // rotary, [d/2]
  at::Device device = at::kCPU;
  double rotary_scale = 1;  // of cosines and sines
  /// Where a row's frequencies hang on how many tokens the text had when it was read: what they are above
  /// `plain_length` tokens.
  std::function<std::vector<double>(int64_t length)> frequencies_at = {};
  int64_t plain_length = std::numeric_limits<int64_t>::max();
};

/// Paged keys and values of many sequences of different lengths.  A sequence has `length` committed tokens in
/// slots 0 .. length-1; the rows of a pass are written behind them and become committed, or not, by `keep`.
/// Full pages are never written again, so sequences that begin with the same tokens share them: whoever
/// computed them publishes them, and they stay, while nobody needs the room, when their sequences are gone.
/// Of a page that begins as another's next one will, the rows up to there are copied.
class KvCache {
 public:
  KvCache(KvShape shape, int64_t pages, int64_t page_size);

  static int64_t bytes_per_page(const KvShape& shape, int64_t page_size);

  /// A new, empty sequence, whose first `prompt` tokens are read as one text, in however many passes.
  int32_t open(int64_t prompt = 0);
  void close(int32_t sequence);  // its pages are free again, or idle if they were published

  /// A sequence that has nothing but what it took so, at first nothing, takes the published pages that hold
  /// the beginning of `ids`: returns how many tokens are committed by now, a multiple of the page size below
  /// ids.size() (the last one's logits are wanted).
  int64_t share(int32_t sequence, std::span<const int64_t> ids);

  /// How many tokens of a page more it could copy, and does: what is committed is returned.  It has pages of
  /// its own then.  Nothing where no page is free for them.
  int64_t beginning_known(int32_t sequence, std::span<const int64_t> ids) const;
  int64_t copy_beginning(int32_t sequence, std::span<const int64_t> ids);

  /// Lets others share the full pages that hold `ids`, committed tokens from the beginning, and copy from the
  /// last one.  Layers of a drafter must hold them too.
  void publish(int32_t sequence, std::span<const int64_t> ids);
  int64_t length(int32_t sequence) const { return sequences_[sequence].length; }

  /// Pages that `sequence` lacks to hold `rows` more rows, and whether so many are free.
  int64_t missing_pages(int32_t sequence, int64_t rows) const;
  bool fits(int32_t sequence, int64_t rows) const { return missing_pages(sequence, rows) <= free_pages(); }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()) + prefixes_.idle(); }
  /// Committed tokens of all open sequences, shared ones counted once.
  int64_t tokens() const;
  int64_t pages() const { return pages_; }
  int64_t page_size() const { return page_size_; }

  /// Slots, positions and paths for a pass of the target, on the CPU; takes the pages it needs.  c10::Error
  /// when they do not suffice (ask `fits` first).
  Placement place(const RowBatch& batch);

  /// The same for rows of a drafter's own layer: committed ones, or those of the last pass, of which none has
  /// been kept yet, in the slots that kept ones will have.
  Placement place(std::span<const Segment> segments);

  /// A slot that belongs to no sequence, for rows that nobody needs; only on a GPU.
  int64_t spare_slot() const { return pages_ * page_size_; }

  /// Commits rows of the last pass: `kept` are row numbers within the sequence's rows of that pass,
  /// ascending, a path from the root (0, 3, 7: the root, its fourth row, ...).  Their keys and values move
  /// together behind the committed ones, in the layers below `layers`; pages no longer needed are freed.
  void keep(int32_t sequence, std::span<const int32_t> kept, int64_t layers) {
    const Kept one{sequence, kept};
    keep({&one, 1}, layers);
  }
  /// The same for several sequences, each of which stands once.
  struct Kept {
    int32_t sequence;
    std::span<const int32_t> rows;
  };
  void keep(std::span<const Kept> all, int64_t layers) {
    move(moves_of(all), layers);
    commit(all);
  }

  /// The two halves of `keep`, for where a GPU finds out by itself what is kept: the moves of keys and values
  /// (`kernels::move_rows`' argument, on the cache's device), and what the CPU notes down.
  void move(const at::Tensor& moves, int64_t layers);
  void commit(std::span<const Kept> all);

  /// Adds the slots that the first `rows` rows of the last pass have taken.
  void add_slots(int32_t sequence, int64_t rows, std::vector<int64_t>& slots) const;

  at::Tensor keys(int64_t layer) const {
    return parts_[2 * layer];
  }  // [pages (a GPU's: and one), Hkv, page_size, d]
  at::Tensor values(int64_t layer) const { return parts_[2 * layer + 1]; }  // the same
  const KvShape& shape() const { return shape_; }

 private:
  struct Sequence {
    std::vector<int32_t> pages;
    int64_t length = 0;
    int64_t shared = 0;  // of its pages, from the first, are published
    bool part = false;   // the page behind these is, too, with the tokens read so far
    bool open = false;
    int64_t prompt = 0;  // tokens read as one text
  };
  /// A row to turn: the text has `length` tokens when it is read.
  struct Turn {
    int32_t position;
    int64_t length;
  };
  /// Whether keys of a prompt are those of no other text that begins alike.
  bool turns_by_prompt(const Sequence& sequence) const { return sequence.prompt > shape_.plain_length; }
  PrefixPages::Head known_head(const Sequence& sequence, std::span<const int64_t> ids) const;
  at::Tensor moves_of(std::span<const Kept> all) const;
  int32_t take_page();
  void reserve(Sequence& sequence, int64_t slots);
  int64_t slot(const Sequence& sequence, int64_t index) const {
    return static_cast<int64_t>(sequence.pages[index / page_size_]) * page_size_ + index % page_size_;
  }
  at::Tensor page_table(std::span<const int32_t> sequences) const;
  void rotary(const std::vector<Turn>& turns, Placement& placement);

  KvShape shape_;
  int64_t pages_;
  int64_t page_size_;
  at::Tensor rows_;                // [2 * layers, pages, Hkv, page_size, d]: a layer's keys, then its values;
                                   // a spare page behind them on a GPU
  std::vector<at::Tensor> parts_;  // views of its first dimension
  std::vector<Sequence> sequences_;
  std::vector<float> cos_, sin_;  // [positions seen, d/2]
  std::vector<int32_t> closed_;   // sequence numbers to use again
  std::vector<int32_t> free_;     // page numbers, the next one last
  PrefixPages prefixes_;
};

}  // namespace clover::model
