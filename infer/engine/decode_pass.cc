#include "infer/engine/decode_pass.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "kernels/vocabulary/edit_logits.h"
#include "kernels/vocabulary/top_k.h"
#include "model/graphs/timer.h"

namespace clover::infer {
namespace {

/// Adds the sampling rule of the token after each node of `tree`.  `position`: of the token after the root.
void add_rules(const CandidateTree& tree, const Request& request, int64_t position,
               std::vector<kernels::RowRule>& rules) {
  const auto& [temperature, top_p, top_k, min_p] = request.sampling;
  const double max_distance = -std::log(min_p);
  for (const int32_t depth : tree.depth) {
    const double uniform = temperature > 0 ? uniform_at(request.random, position + depth) : 0;
    rules.push_back({temperature, top_p, static_cast<double>(top_k), uniform, max_distance});
  }
}

/// The token of each of W rows of `logits` under its rule: i64 [W] on the same device.
at::Tensor choose_tokens(const at::Tensor& logits, std::vector<kernels::RowRule> rules) {
  const bool greedy =
      std::all_of(rules.begin(), rules.end(), [](const auto& rule) { return rule.temperature == 0; });
  if (greedy) return kernels::arg_max(logits);
  constexpr int64_t fields = sizeof(kernels::RowRule) / sizeof(double);
  const at::Tensor on_cpu = at::from_blob(rules.data(), {std::ssize(rules), fields}, at::kDouble);
  return kernels::sample(logits, kernels::to_device(on_cpu, logits.device()));
}

/// All rows of the pass.  In a chunk each row is the parent of the next.
model::RowBatch rows_of(const DecodePass& pass) {
  model::RowBatch batch;
  for (size_t i = 0; i < pass.trees.size(); ++i) {
    const CandidateTree& tree = pass.trees[i];
    const int32_t base = static_cast<int32_t>(batch.size());
    for (int64_t node = 0; node < tree.size(); ++node) {
      const int32_t parent = tree.parent[node];
      batch.add(tree.ids[node], pass.sequences[i]->seq_id(), parent < 0 ? -1 : base + parent);
    }
  }
  for (const PrefillChunk& chunk : pass.chunks) {
    const std::span<const int64_t> ids = chunk.live->prefill_tokens().subspan(chunk.begin, chunk.rows);
    for (int64_t i = 0; i < chunk.rows; ++i)
      batch.add(ids[i], chunk.live->seq_id(), i == 0 ? -1 : static_cast<int32_t>(batch.size()) - 1);
  }
  batch.wanted_rows = pass.wanted_rows();
  return batch;
}

/// [W] the sampling rule of each of wanted_rows().
std::vector<kernels::RowRule> rules_of(const DecodePass& pass) {
  std::vector<kernels::RowRule> rules;
  for (size_t i = 0; i < pass.trees.size(); ++i)
    add_rules(pass.trees[i], pass.sequences[i]->request(), pass.context_lengths[i] + 1, rules);
  // The last row of a prompt counts as a tree that is only a root.
  const CandidateTree last_row = CandidateTree::of_root(0);
  for (const PrefillChunk& chunk : pass.chunks)
    if (chunk.last) add_rules(last_row, chunk.live->request(), chunk.begin + chunk.rows, rules);
  return rules;
}

bool is_greedy(const DecodePass& pass) {
  const auto greedy = [](const LiveSequence* live) { return live->request().sampling.temperature == 0; };
  return std::ranges::all_of(pass.sequences, greedy) &&
         std::ranges::all_of(pass.chunks,
                             [&](const PrefillChunk& chunk) { return !chunk.last || greedy(chunk.live); });
}

bool edits_logits(const DecodePass& pass) {
  const auto controlled = [](LiveSequence* live) { return live->logit_editor() != nullptr; };
  return std::ranges::any_of(pass.sequences, controlled) ||
         std::ranges::any_of(pass.chunks,
                             [&](const PrefillChunk& chunk) { return chunk.last && controlled(chunk.live); });
}

/// The edits of the logits [W, V] that the controls of requests make.
LogitEdits edits_of(const DecodePass& pass) {
  LogitEdits edits;
  int64_t row = 0;
  const auto add = [&](LiveSequence& live, const CandidateTree& tree) {
    if (LogitEditor* editor = live.logit_editor()) editor->add_edits(tree, row, edits);
    row += tree.size();
  };
  for (size_t i = 0; i < pass.trees.size(); ++i) add(*pass.sequences[i], pass.trees[i]);
  const CandidateTree last_row = CandidateTree::of_root(0);
  for (const PrefillChunk& chunk : pass.chunks)
    if (chunk.last) add(*chunk.live, last_row);
  return edits;
}

/// The bytes of n structs as i32 [n, sizeof(Struct) / 4] on `device`.
template <class Struct>
at::Tensor to_int32_words(std::vector<Struct>& structs, at::Device device) {
  constexpr int64_t words = sizeof(Struct) / sizeof(int32_t);
  return kernels::to_device(at::from_blob(structs.data(), {std::ssize(structs), words}, at::kInt), device);
}

/// Edits the logits [W, V] in place.
void apply_controls(const DecodePass& pass, at::Tensor logits) {
  LogitEdits edits = edits_of(pass);
  if (edits.rows.empty()) return;
  kernels::edit_logits(logits, to_int32_words(edits.edits, logits.device()),
                       to_int32_words(edits.rows, logits.device()));
}

at::Tensor index_tensor(std::span<const int64_t> rows) {
  return at::tensor(at::IntArrayRef(rows.data(), rows.size()), at::kLong);
}

/// A copy of the given rows.
at::Tensor select(const at::Tensor& tensor, std::span<const int64_t> rows) {
  return tensor.index_select(0, kernels::to_device(index_tensor(rows), tensor.device()));
}

model::Features select(const model::Features& features, std::span<const int64_t> rows) {
  return features.rows(index_tensor(rows));
}

template <class T>
std::vector<T> select(const std::vector<T>& elements, std::span<const int64_t> rows) {
  std::vector<T> selected;
  for (const int64_t row : rows) selected.push_back(elements[row]);
  return selected;
}

}  // namespace

bool DecodePass::plain() const {
  return std::all_of(trees.begin(), trees.end(), [](const CandidateTree& tree) { return tree.size() == 1; });
}

bool DecodePass::ends_prompts() const {
  return std::ranges::any_of(chunks, &PrefillChunk::last);
}

int64_t DecodePass::tree_rows() const {
  int64_t rows = 0;
  for (const CandidateTree& tree : trees) rows += tree.size();
  return rows;
}

int64_t DecodePass::chunk_rows() const {
  int64_t rows = 0;
  for (const PrefillChunk& chunk : chunks) rows += chunk.rows;
  return rows;
}

std::vector<int64_t> DecodePass::wanted_rows() const {
  std::vector<int64_t> rows(tree_rows());
  std::iota(rows.begin(), rows.end(), 0);
  for (int64_t end = tree_rows(); const PrefillChunk& chunk : chunks) {
    end += chunk.rows;
    if (chunk.last) rows.push_back(end - 1);
  }
  return rows;
}

DecodePass PassRunner::begin(std::vector<LiveSequence*> sequences, std::vector<CandidateTree> trees,
                             std::vector<PrefillChunk> chunks) {
  return begin(std::move(sequences), std::move(trees), std::move(chunks), {});
}

DecodePass PassRunner::begin(std::vector<LiveSequence*> sequences, std::vector<CandidateTree> trees,
                             std::vector<PrefillChunk> chunks, const at::Tensor& first_ids) {
  DecodePass pass;
  for (const LiveSequence* live : sequences) pass.context_lengths.push_back(cache_.length(live->seq_id()));
  pass.sequences = std::move(sequences);
  pass.trees = std::move(trees);
  pass.chunks = std::move(chunks);
  model::RowBatch batch = rows_of(pass);
  pass.edits_logits = edits_logits(pass);
  batch.arg_max_only = !options_.typical && !pass.edits_logits && is_greedy(pass);
  if (options_.recorded_answers)
    read_recorded(pass, batch);
  else if (samples_on_device())
    launch_on_device(pass, batch, first_ids);
  else
    run_and_wait(pass, batch);
  pass.representative = pass_graphs_.warm() && pass.chunks.empty();
  return pass;
}

void PassRunner::launch_on_device(DecodePass& pass, const model::RowBatch& batch,
                                  const at::Tensor& first_ids) const {
  pass.launch_event = kernels::record_event(device_);
  const double capture_seconds_before = graph_runner_.seconds();
  pass.output = pass_graphs_.forward(batch, taps_, first_ids);
  pass.capture_seconds = graph_runner_.seconds() - capture_seconds_before;
  if (batch.wanted_rows.empty()) return;
  const at::Tensor logits = std::exchange(pass.output.logits, {});
  if (pass.edits_logits) apply_controls(pass, logits);
  pass.device_tokens = batch.arg_max_only ? pass.output.arg_max : choose_tokens(logits, rules_of(pass));
  pass.token_copy = kernels::copy_to_host_async(pass.device_tokens);
}

void PassRunner::run_and_wait(DecodePass& pass, const model::RowBatch& batch) const {
  const model::Timer timer(pass.seconds);
  pass.output = pass_graphs_.forward(batch, taps_);
  if (batch.wanted_rows.empty()) return;
  if (pass.edits_logits) apply_controls(pass, pass.output.logits);
  if (batch.arg_max_only)
    pass.target_tokens.tokens = kernels::to_host({pass.output.arg_max})[0];
  else
    pass.target_tokens.logits = kernels::to_host({pass.output.logits})[0];
}

/// Sets the results of a pass whose trees are paths along the recorded answers.
void PassRunner::read_recorded(DecodePass& pass, const model::RowBatch& batch) const {
  cache_.place(batch);  // takes the pages of the rows, as a pass does
  std::vector<model::Features> parts;
  std::vector<int64_t> tokens;
  const auto add_features = [&](const LiveSequence& live, int64_t begin, int64_t rows) {
    if (taps_ != model::FeatureTaps{})
      parts.push_back(live.request().recorded->features.only(taps_).slice(begin, begin + rows));
  };
  // Nothing reads what follows the last token of an answer.
  const auto add_token_after = [&](const LiveSequence& live, int64_t position) {
    const auto& answer = live.request().recorded->token_ids;
    const size_t next = position + 1 - live.request().prompt.size();
    tokens.push_back(answer[std::min(next, answer.size() - 1)]);
  };
  for (size_t i = 0; i < pass.trees.size(); ++i) {
    const int64_t begin = pass.context_lengths[i], rows = pass.trees[i].size();
    add_features(*pass.sequences[i], begin, rows);
    for (int64_t row = 0; row < rows; ++row) add_token_after(*pass.sequences[i], begin + row);
  }
  for (const PrefillChunk& chunk : pass.chunks) {
    add_features(*chunk.live, chunk.begin, chunk.rows);
    if (chunk.last) add_token_after(*chunk.live, chunk.begin + chunk.rows - 1);
  }
  if (!parts.empty()) pass.output.features = model::Features::concatenated(parts);
  pass.target_tokens.tokens = at::tensor(tokens, at::kLong);
}

DecodePass PassRunner::begin_next(DecodePass& pass, std::vector<PrefillChunk> chunks) {
  copy_wanted_features(pass);
  const std::vector<int32_t> root{0};
  std::vector<model::KvCache::KeptRows> kept;
  for (const LiveSequence* live : pass.sequences) kept.push_back({live->seq_id(), root});
  cache_.commit(kept);
  pass.commit_state = CommitState::committed;

  std::vector<int64_t> rows;  // of `pass`: those of the sequences that continue
  for (size_t i = 0; i < pass.sequences.size(); ++i)
    if (continues(*pass.sequences[i])) rows.push_back(static_cast<int64_t>(i));
  std::vector<LiveSequence*> sequences = select(pass.sequences, rows);
  std::vector<CandidateTree> trees(sequences.size(), CandidateTree::of_root(0));
  const bool all_continue = std::ssize(rows) == pass.device_tokens.size(0);
  DecodePass next = begin(std::move(sequences), std::move(trees), std::move(chunks),
                          all_continue ? pass.device_tokens : select(pass.device_tokens, rows));
  // A later pass of the same shape may overwrite the results before they are used, so they are copied.  With
  // chunks, Engine::commit_prefill copies the features, after the drafter has read those of the chunks.
  if (next.chunks.empty()) copy_wanted_features(next);
  if (next.output.arg_max.defined()) next.device_tokens = next.device_tokens.clone();
  return next;
}

void PassRunner::copy_wanted_features(DecodePass& pass) const {
  if (std::exchange(pass.owns_features, true)) return;
  pass.output.features = select(pass.output.features, pass.wanted_rows());
}

void PassRunner::retain(DecodePass& pass, std::span<const int64_t> sequences,
                        std::span<const int64_t> chunks) const {
  std::vector<int64_t> indices(sequences.begin(), sequences.end());  // elements of [W] that remain
  std::vector<bool> chunk_remains(pass.chunks.size());
  for (const int64_t chunk : chunks) chunk_remains[chunk] = true;
  for (int64_t index = pass.tree_rows(), i = 0; i < std::ssize(pass.chunks); ++i) {
    if (!pass.chunks[i].last) continue;
    if (chunk_remains[i]) indices.push_back(index);
    ++index;
  }
  pass.sequences = select(pass.sequences, sequences);
  pass.trees = select(pass.trees, sequences);
  pass.context_lengths = select(pass.context_lengths, sequences);
  pass.chunks = select(pass.chunks, chunks);
  pass.representative = false;  // its time includes the removed rows
  if (!pass.device_tokens.defined()) return;
  pass.device_tokens = select(pass.device_tokens, indices);
  pass.output.features = select(pass.output.features, indices);
  pass.retained_indices = std::move(indices);
}

// A pass has no tokens if it decodes nothing and no chunk is the last one of its sequence.
void PassRunner::wait(DecodePass& pass) const {
  if (!samples_on_device() || !pass.device_tokens.defined()) return;
  pass.target_tokens.tokens = pass.token_copy.wait();
  pass.seconds = pass.token_copy.event->seconds_since(*pass.launch_event) - pass.capture_seconds;
  if (pass.retained_indices)
    pass.target_tokens.tokens = select(pass.target_tokens.tokens, *pass.retained_indices);
}

}  // namespace clover::infer
