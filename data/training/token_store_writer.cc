#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/hash.h"
#include "data/files/safetensors.h"
#include "data/training/token_store.h"

namespace clover::data {
namespace {

template <typename T>
std::string_view bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

uint64_t sample_hash(std::span<const int32_t> ids, std::span<const uint8_t> supervised) {
  uint64_t hash = fnv1a(bytes_of(supervised), fnv1a(bytes_of(ids)));
  // Stores record a hash of these hashes, so the mixing must stay although nothing needs it.
  hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdull;
  hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53ull;
  return hash ^ hash >> 33;
}

/// The origin of a sample of token ids.  Its prompt is the bytes of the ids before the first supervised one,
/// if there are at least two such ids.  SampleGroups removes trailing white space, but these bytes have none:
/// an id is below 2^24, so its last byte is 0.
SampleOrigin origin_of_tokens(std::span<const int32_t> ids, std::span<const uint8_t> supervised) {
  const auto prompt_length = std::find(supervised.begin(), supervised.end(), uint8_t{1}) - supervised.begin();
  return {prompt_length > 1 ? std::string(bytes_of(ids.first(prompt_length))) : std::string(),
          std::string(bytes_of(ids))};
}

/// A tensor [values.size()] over the vector's memory.
template <typename T>
at::Tensor view_of(std::vector<T>& values) {
  return at::from_blob(values.data(), {static_cast<int64_t>(values.size())},
                       at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value));
}

double checked_holdout(double holdout) {
  if (!(holdout >= 0 && holdout < 1)) {
    throw InputError("holdout: expected a share of at least 0 and below 1, found " + std::to_string(holdout));
  }
  return holdout;
}

/// InputError when the folder holds anything but a store, since the whole folder is replaced.
const std::filesystem::path& checked_folder(const std::filesystem::path& folder) {
  remove_unfinished(folder);
  if (!std::filesystem::exists(folder)) return folder;
  if (!std::filesystem::is_directory(folder)) {
    throw InputError(folder.string() + ": expected a folder for the token store, found a file");
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool is_store_file = name == "store.json" || name == "tokens.safetensors" ||
                               name.rfind(".store.json.", 0) == 0 ||
                               name.rfind("tokens.safetensors.tmp-", 0) == 0;
    if (!is_store_file) {
      throw InputError(folder.string() + ": expected a token store or an empty folder, found " + name +
                       " in it; choose another folder");
    }
  }
  return folder;
}

}  // namespace

TokenStoreWriter::TokenStoreWriter(std::filesystem::path folder, double holdout, int64_t vocab_size)
    : folder_(std::move(folder)),
      holdout_(checked_holdout(holdout)),
      vocab_size_(vocab_size),
      new_store_(checked_folder(folder_)) {}

void TokenStoreWriter::append(Columns& columns, std::span<const int32_t> ids,
                              std::span<const uint8_t> supervised, int32_t category, uint64_t hash) {
  columns.ids.insert(columns.ids.end(), ids.begin(), ids.end());
  columns.supervised.insert(columns.supervised.end(), supervised.begin(), supervised.end());
  columns.offsets.push_back(static_cast<int64_t>(columns.ids.size()));
  columns.category.push_back(category);
  columns.hashes.push_back(hash);
}

void TokenStoreWriter::add(const TrainingSample& sample) {
  if (sample.ids.empty() || sample.ids.size() != sample.supervised.size()) {
    throw InputError("the sample: expected tokens and as many mask values, found " +
                     std::to_string(sample.ids.size()) + " and " + std::to_string(sample.supervised.size()));
  }
  std::vector<int32_t> ids;
  std::vector<uint8_t> supervised;
  for (size_t i = 0; i < sample.ids.size(); ++i) {
    if (sample.ids[i] < 0 || sample.ids[i] >= vocab_size_) {
      throw InputError("token id " + std::to_string(sample.ids[i]) + ": expected 0 <= id < " +
                       std::to_string(vocab_size_));
    }
    ids.push_back(static_cast<int32_t>(sample.ids[i]));
    supervised.push_back(sample.supervised[i] != 0);
  }
  const int32_t category =
      categories_.emplace(sample.category, static_cast<int32_t>(categories_.size())).first->second;
  groups_.add(sample.origin.prompt.empty() && sample.origin.full_text.empty()
                  ? origin_of_tokens(ids, supervised)
                  : sample.origin);
  append(columns_[0], ids, supervised, category, sample_hash(ids, supervised));
}

void TokenStoreWriter::split_held_out() {
  const std::vector<uint64_t> keys = groups_.keys();
  const std::vector<uint8_t> held_out = held_out_samples(keys, holdout_);
  std::set<uint64_t> prompts[2];
  for (size_t i = 0; i < keys.size(); ++i) prompts[held_out[i]].insert(keys[i]);
  for (int split = 0; split < 2; ++split) prompts_[split] = std::ssize(prompts[split]);
  if (prompts_[1] == 0) return;
  Columns split_columns[2];
  Columns& samples = columns_[0];
  for (size_t i = 0; i < keys.size(); ++i) {
    const size_t begin = samples.offsets[i], length = samples.offsets[i + 1] - begin;
    append(split_columns[held_out[i]], std::span(samples.ids).subspan(begin, length),
           std::span(samples.supervised).subspan(begin, length), samples.category[i], samples.hashes[i]);
  }
  for (int split = 0; split < 2; ++split) columns_[split] = std::move(split_columns[split]);
}

nlohmann::json TokenStoreWriter::finish(const nlohmann::json& metadata) {
  if (columns_[0].hashes.empty()) throw InputError(folder_.string() + ": there is no sample to store");
  split_held_out();

  nlohmann::json store = metadata.is_object() ? metadata : nlohmann::json::object();
  std::vector<std::string> categories(categories_.size());
  for (const auto& [category, index] : categories_) categories[index] = category;
  NamedTensors tensors;
  uint64_t hash = fnv1a_offset_basis;
  for (int split = 0; split < 2; ++split) {
    Columns& columns = columns_[split];
    const std::string name = split_names[split];
    store[name] = {
        {"samples", columns.hashes.size()},
        {"tokens", columns.ids.size()},
        {"prompts", prompts_[split]},
        {"supervised_tokens", std::count(columns.supervised.begin(), columns.supervised.end(), 1)}};
    tensors.emplace_back(name + ".ids", view_of(columns.ids));
    tensors.emplace_back(name + ".supervised", view_of(columns.supervised));
    tensors.emplace_back(name + ".offsets", view_of(columns.offsets));
    tensors.emplace_back(name + ".category", view_of(columns.category));
    for (size_t i = 0; i < columns.hashes.size(); ++i) {
      hash = fnv1a(categories[columns.category[i]], fnv1a(hex(columns.hashes[i]), hash));
    }
    hash = fnv1a("/", hash);
  }
  store["version"] = token_store_version;
  store["vocab_size"] = vocab_size_;
  store["holdout"] = holdout_;
  store["split_by"] = "prompt";
  store["categories"] = categories;
  store["content_hash"] = hex(hash);

  write_safetensors(new_store_.path() / "tokens.safetensors", tensors, {{"content_hash", hex(hash)}});
  write_file_atomically(new_store_.path() / "store.json", store.dump(1) + "\n");
  new_store_.finish();
  return store;
}

}  // namespace clover::data
