#include "model/cache/kv_cache.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/gpu/gpu.h"
#include "kernels/rows/move_rows.h"
#include "kernels/weights/large_pages.h"

namespace clover::model {
namespace {

at::Tensor to_tensor(const std::vector<int32_t>& values) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::kInt);
  std::copy(values.begin(), values.end(), tensor.data_ptr<int32_t>());
  return tensor;
}

}  // namespace

KvCache::KvCache(KvShape shape, int64_t pages, int64_t page_size)
    : shape_(std::move(shape)),
      pages_(pages),
      page_size_(page_size),
      rotary_({shape_.frequencies, shape_.rotary_scale, shape_.frequencies_at, shape_.fixed_rotation_length}),
      prefixes_(page_size) {
  TORCH_CHECK(pages > 0 && page_size > 0,
              "KvCache: expected a positive number of pages and page size, found ", pages, " and ",
              page_size);
  // On a CPU, slots that were never written cost address space only: the operating system provides memory at
  // the first write, up to 2 MB at a time.
  const bool on_cpu = shape_.device.is_cpu();
  const std::array sizes{2 * shape_.layers, pages + (on_cpu ? 0 : 1), shape_.kv_heads, page_size,
                         shape_.head_dim};
  const auto options = at::TensorOptions(shape_.dtype).device(shape_.device);
  // Attention on a GPU multiplies what is stored after a sequence's last row by zero, so it must be finite.
  storage_ = on_cpu ? kernels::zeros_in_large_pages(sizes, options) : at::zeros(sizes, options);
  layer_views_ = storage_.unbind(0);
  for (int64_t page = pages - 1; page >= 0; --page) unused_pages_.push_back(static_cast<int32_t>(page));
}

int64_t KvCache::bytes_per_page(const KvShape& shape, int64_t page_size) {
  return 2 * shape.layers * page_size * shape.kv_heads * shape.head_dim *
         static_cast<int64_t>(c10::elementSize(shape.dtype));
}

int32_t KvCache::open(int64_t prompt_length) {
  int32_t number;
  if (!closed_sequences_.empty()) {
    number = closed_sequences_.back();
    closed_sequences_.pop_back();
  } else {
    number = static_cast<int32_t>(sequences_.size());
    sequences_.emplace_back();
  }
  sequences_[number] = Sequence{};
  sequences_[number].open = true;
  sequences_[number].prompt_length = prompt_length;
  return number;
}

void KvCache::close(int32_t sequence) {
  Sequence& closing = sequences_[sequence];
  TORCH_CHECK(closing.open, "KvCache: sequence ", sequence, " is not open");
  for (int64_t i = std::ssize(closing.pages) - 1; i >= 0; --i) {
    if (i < closing.published_pages || (i == closing.published_pages && closing.partial_published))
      prefixes_.release(closing.pages[i]);
    else
      unused_pages_.push_back(closing.pages[i]);
  }
  for (const int32_t page : prefixes_.evict_surplus(pages_)) unused_pages_.push_back(page);
  closing = Sequence{};
  closed_sequences_.push_back(sequence);
}

int64_t KvCache::share_prefix(int32_t number, std::span<const int64_t> ids) {
  Sequence& sequence = sequences_[number];
  TORCH_CHECK(sequence.open && sequence.length == sequence.published_pages * page_size_ &&
                  std::ssize(sequence.pages) == sequence.published_pages,
              "KvCache: only a sequence without pages of its own can share others'");
  if (ids.empty() || rotates_by_prompt(sequence)) return 0;
  const std::vector<int32_t> pages = prefixes_.find(ids.first(ids.size() - 1));
  for (size_t i = sequence.pages.size(); i < pages.size(); ++i) {
    prefixes_.use(pages[i]);
    sequence.pages.push_back(pages[i]);
  }
  sequence.published_pages = std::ssize(sequence.pages);
  sequence.length = sequence.published_pages * page_size_;
  return sequence.length;
}

PrefixPages::PartialMatch KvCache::partial_match(const Sequence& sequence,
                                                 std::span<const int64_t> ids) const {
  if (ids.empty() || sequence.length != sequence.published_pages * page_size_ || rotates_by_prompt(sequence))
    return {};
  return prefixes_.find_partial(sequence.pages.empty() ? -1 : sequence.pages.back(),
                                ids.first(ids.size() - 1).subspan(sequence.length));
}

int64_t KvCache::copyable_page_rows(int32_t number, std::span<const int64_t> ids) const {
  return partial_match(sequences_[number], ids).rows;
}

int64_t KvCache::copy_page_rows(int32_t number, std::span<const int64_t> ids) {
  Sequence& sequence = sequences_[number];
  const auto [page, rows] = partial_match(sequence, ids);
  if (rows == 0) return sequence.length;
  prefixes_.use(page);  // so that taking a page cannot evict it
  if (free_pages() > 0) {
    reserve(sequence, sequence.length + rows);
    at::Tensor moves = at::empty({3, rows}, at::kLong);
    int64_t *from = moves.mutable_data_ptr<int64_t>(), *to = from + rows;
    for (int64_t i = 0; i < rows; ++i) {
      from[i] = page * page_size_ + i;
      to[i] = cache_slot(sequence, sequence.length + i);
    }
    moves[2].fill_(number);
    compact(kernels::to_device(moves, shape_.device), shape_.layers);
    sequence.length += rows;
  }
  prefixes_.release(page);
  return sequence.length;
}

void KvCache::publish(int32_t number, std::span<const int64_t> ids) {
  Sequence& sequence = sequences_[number];
  TORCH_CHECK(std::ssize(ids) <= sequence.length, "KvCache: ", ids.size(), " tokens cannot be published, ",
              sequence.length, " are committed");
  if (rotates_by_prompt(sequence)) return;
  if (std::exchange(sequence.partial_published, false))
    prefixes_.remove(sequence.pages[sequence.published_pages]);
  while ((sequence.published_pages + 1) * page_size_ <= std::ssize(ids)) {
    const int32_t parent = sequence.published_pages == 0 ? -1 : sequence.pages[sequence.published_pages - 1];
    // If another sequence has published the same tokens, its page stays the one that is shared.
    if (!prefixes_.add(parent, ids.subspan(sequence.published_pages * page_size_, page_size_),
                       sequence.pages[sequence.published_pages]))
      return;
    ++sequence.published_pages;
  }
  const std::span<const int64_t> partial_page = ids.subspan(sequence.published_pages * page_size_);
  if (partial_page.empty()) return;
  const int32_t parent = sequence.published_pages == 0 ? -1 : sequence.pages[sequence.published_pages - 1];
  sequence.partial_published = prefixes_.add(parent, partial_page, sequence.pages[sequence.published_pages]);
}

int32_t KvCache::take_page() {
  if (unused_pages_.empty() && prefixes_.idle_pages() > 0) return prefixes_.evict();
  TORCH_CHECK(!unused_pages_.empty(), "KvCache: no free page left of ", pages_);
  const int32_t page = unused_pages_.back();
  unused_pages_.pop_back();
  return page;
}

int64_t KvCache::missing_pages(int32_t sequence, int64_t rows) const {
  const Sequence& entry = sequences_[sequence];
  const int64_t needed = (entry.length + rows + page_size_ - 1) / page_size_;
  return std::max<int64_t>(0, needed - std::ssize(entry.pages));
}

int64_t KvCache::tokens() const {
  int64_t tokens = prefixes_.used_full_pages() * page_size_;
  for (const Sequence& sequence : sequences_)
    tokens += sequence.length - sequence.published_pages * page_size_;
  return tokens;
}

void KvCache::reserve(Sequence& sequence, int64_t slots) {
  while (static_cast<int64_t>(sequence.pages.size()) * page_size_ < slots) {
    sequence.pages.push_back(take_page());
  }
}

at::Tensor KvCache::page_table(std::span<const int32_t> sequences) const {
  size_t longest = 1;
  for (const int32_t number : sequences) longest = std::max(longest, sequences_[number].pages.size());
  at::Tensor table =
      at::empty({static_cast<int64_t>(sequences.size()), static_cast<int64_t>(longest)}, at::kInt).zero_();
  for (size_t i = 0; i < sequences.size(); ++i) {
    const auto& pages = sequences_[sequences[i]].pages;
    std::copy(pages.begin(), pages.end(), table.data_ptr<int32_t>() + i * longest);
  }
  return table;
}

Placement KvCache::place(const RowBatch& batch) {
  const int64_t rows = batch.size();
  std::vector<int32_t> sequences;  // rows of the page table: the batch's sequences in order of appearance
  // table_row: index in `sequences`.  A row attends to sequence slots 0 .. contiguous - 1 and then to those
  // of `path`, from path_begin[row] on (kernels::AttentionRows).
  std::vector<int32_t> table_row(rows), contiguous(rows), positions(rows), path, path_begin{0};
  Placement placement;
  placement.slots = at::empty({rows}, at::kLong);
  int64_t first = 0;  // first row of the sequence that `row` belongs to
  for (int64_t row = 0; row < rows; ++row) {
    Sequence& sequence = sequences_[batch.sequence[row]];
    if (row == 0 || batch.sequence[row] != batch.sequence[row - 1]) {
      first = row;
      sequences.push_back(batch.sequence[row]);
      int64_t count = 1;
      while (row + count < rows && batch.sequence[row + count] == batch.sequence[row]) ++count;
      reserve(sequence, sequence.length + count);
    }
    const int32_t parent = batch.parent[row];
    TORCH_CHECK(parent == -1 || (parent >= first && parent < row), "RowBatch: row ", row, " has parent ",
                parent, ", expected -1 or an earlier row of its sequence");
    table_row[row] = static_cast<int32_t>(sequences.size()) - 1;
    const int32_t sequence_slot = static_cast<int32_t>(sequence.length + row - first);
    positions[row] = parent < 0 ? static_cast<int32_t>(sequence.length) : positions[parent] + 1;
    contiguous[row] = parent < 0 ? static_cast<int32_t>(sequence.length) : contiguous[parent];
    if (parent >= 0) {
      for (int32_t i = path_begin[parent]; i < path_begin[parent + 1]; ++i) path.push_back(path[i]);
    }
    if (static_cast<int32_t>(path.size()) == path_begin[row] && sequence_slot == contiguous[row]) {
      ++contiguous[row];  // still one run of slots from 0
    } else {
      path.push_back(sequence_slot);
    }
    path_begin.push_back(static_cast<int32_t>(path.size()));
    placement.slots.data_ptr<int64_t>()[row] = cache_slot(sequence, sequence_slot);
  }
  std::vector<RotaryTable::Row> rotary_rows(rows);
  for (int64_t row = 0; row < rows; ++row)
    rotary_rows[row] = {positions[row],
                        std::max<int64_t>(positions[row] + 1, sequences_[batch.sequence[row]].prompt_length)};
  rotary_.fill(rotary_rows, placement);
  placement.rows = {to_tensor(table_row), to_tensor(contiguous), to_tensor(path_begin), to_tensor(path),
                    page_table(sequences)};
  return placement;
}

Placement KvCache::place(std::span<const Segment> segments, int64_t guess_slots,
                         RotaryTable* drafter_rotation) {
  std::vector<int32_t> sequences, table_row, contiguous;  // as in the other `place`
  std::vector<RotaryTable::Row> rotary_rows;
  std::vector<int64_t> slots;
  for (const Segment& segment : segments) {
    Sequence& sequence = sequences_[segment.sequence];
    const int64_t slots_taken = std::ssize(sequence.pages) * page_size_;
    TORCH_CHECK(segment.begin >= 0 && segment.begin + segment.count <= slots_taken, "KvCache: segment ",
                segment.begin, " + ", segment.count, " is beyond the ", slots_taken, " slots taken");
    if (guess_slots > 0) reserve(sequence, segment.begin + segment.count + guess_slots);
    for (int32_t i = 0; i < segment.count; ++i) {
      table_row.push_back(static_cast<int32_t>(sequences.size()));
      rotary_rows.push_back(
          {segment.begin + i, std::max<int64_t>(segment.begin + i + 1, sequence.prompt_length)});
      contiguous.push_back(segment.begin + i + 1);
      slots.push_back(cache_slot(sequence, segment.begin + i));
    }
    sequences.push_back(segment.sequence);
  }
  Placement placement;
  placement.slots = at::empty({static_cast<int64_t>(slots.size())}, at::kLong);
  std::copy(slots.begin(), slots.end(), placement.slots.data_ptr<int64_t>());
  (drafter_rotation != nullptr ? *drafter_rotation : rotary_).fill(rotary_rows, placement);
  placement.rows = {to_tensor(table_row), to_tensor(contiguous),
                    to_tensor(std::vector<int32_t>(slots.size() + 1, 0)), to_tensor({}),
                    page_table(sequences)};
  return placement;
}

// Kept rows ascend, so no move overwrites a row that a later move reads.
at::Tensor KvCache::moves_of(std::span<const KeptRows> kept) const {
  std::vector<int64_t> from, to, group;  // the rows of `moves`
  for (const auto& [number, rows] : kept) {
    const Sequence& sequence = sequences_[number];
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] == static_cast<int32_t>(i)) continue;
      from.push_back(cache_slot(sequence, sequence.length + rows[i]));
      to.push_back(cache_slot(sequence, sequence.length + static_cast<int64_t>(i)));
      group.push_back(number);
    }
  }
  at::Tensor moves = at::empty({3, std::ssize(from)}, at::kLong);
  int64_t* next = moves.mutable_data_ptr<int64_t>();
  for (const auto* part : {&from, &to, &group}) next = std::copy(part->begin(), part->end(), next);
  return from.empty() ? moves : kernels::to_device(moves, shape_.device);
}

void KvCache::compact(const at::Tensor& moves, int64_t layers) {
  if (moves.size(1) == 0) return;
  at::Tensor first_layers = storage_.narrow(0, 0, 2 * layers);
  kernels::move_rows(first_layers, moves);
}

void KvCache::commit(std::span<const KeptRows> kept) {
  for (const auto& [number, rows] : kept) {
    Sequence& sequence = sequences_[number];
    sequence.length += std::ssize(rows);
    const size_t needed = static_cast<size_t>((sequence.length + page_size_ - 1) / page_size_);
    while (sequence.pages.size() > needed) {
      unused_pages_.push_back(sequence.pages.back());
      sequence.pages.pop_back();
    }
  }
}

void KvCache::append_slots(int32_t sequence, int64_t rows, std::vector<int64_t>& slots) const {
  const Sequence& entry = sequences_[sequence];
  for (int64_t i = 0; i < rows; ++i) slots.push_back(cache_slot(entry, entry.length + i));
}

}  // namespace clover::model
