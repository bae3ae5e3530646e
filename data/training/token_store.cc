#include "data/training/token_store.h"

#include <algorithm>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/safetensors.h"

namespace clover::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

[[noreturn]] void fail(const fs::path& folder, const std::string& what) {
  throw InputError(folder.string() + ": " + what + "; run prepare again");
}

int64_t whole_number(const Json& metadata, const char* key, const fs::path& file) {
  const auto found = metadata.find(key);
  if (found == metadata.end() || !found->is_number_integer() || *found < 0) {
    throw InputError(file.string() + ": expected the whole number \"" + key + "\", found " +
                     (found == metadata.end() ? "none" : found->dump().substr(0, 80)));
  }
  if (*found > (int64_t{1} << 60)) {
    throw InputError(file.string() + ": \"" + key + "\" is impossibly large: " + found->dump());
  }
  return found->get<int64_t>();
}

}  // namespace

struct TokenStore::State {
  struct Columns {
    at::Tensor ids;         // [tokens] i32
    at::Tensor supervised;  // [tokens] u8, 0 or 1
    at::Tensor offsets;     // [samples + 1] i64: sample i has the tokens from offset i up to offset i + 1
    at::Tensor category;    // [samples] i32: index into `categories`
    int64_t samples = 0;
    int64_t supervised_tokens = 0;
  };
  fs::path folder;  // for error messages
  Json metadata;    // store.json
  std::vector<std::string> categories;
  Columns columns[2];  // by Split

  void load_metadata();
  void load_split(int split, const SafetensorsReader& reader);
};

namespace {

at::Tensor read_column(const SafetensorsReader& reader, const std::string& name, at::ScalarType dtype,
                       int64_t size, const fs::path& folder) {
  const at::Tensor column = reader.read(name, {size});
  if (column.scalar_type() != dtype) {
    fail(folder, "tensor '" + name + "' has dtype " + c10::toString(column.scalar_type()) + ", expected " +
                     c10::toString(dtype));
  }
  return column;
}

void check_ids(const at::Tensor& ids, int64_t vocab_size, const fs::path& folder) {
  const int32_t* id = ids.const_data_ptr<int32_t>();
  for (int64_t i = 0; i < ids.numel(); ++i) {
    if (id[i] < 0 || id[i] >= vocab_size) {
      fail(folder, "token id " + std::to_string(id[i]) + " is outside the vocabulary of " +
                       std::to_string(vocab_size));
    }
  }
}

void check_offsets(const at::Tensor& offsets, int64_t tokens, const std::string& split,
                   const fs::path& folder) {
  const int64_t* offset = offsets.const_data_ptr<int64_t>();
  const int64_t last = offsets.numel() - 1;
  bool rising = offset[0] == 0 && offset[last] == tokens;
  for (int64_t i = 0; i < last && rising; ++i) rising = offset[i] < offset[i + 1];
  if (!rising) fail(folder, "the offsets of " + split + " do not divide its tokens into samples");
}

}  // namespace

void TokenStore::State::load_metadata() {
  const fs::path file = folder / "store.json";
  metadata = read_json(file);
  if (!metadata.is_object()) throw InputError(file.string() + ": expected a JSON object");
  if (const int64_t version = whole_number(metadata, "version", file); version != token_store_version) {
    fail(folder, "the store has version " + std::to_string(version) + ", expected " +
                     std::to_string(token_store_version));
  }
  if (!metadata.contains("categories") || !metadata["categories"].is_array()) {
    throw InputError(file.string() + ": expected the list \"categories\"");
  }
  for (const Json& category : metadata["categories"]) {
    if (!category.is_string()) throw InputError(file.string() + ": categories must be strings");
    categories.push_back(category);
  }
}

void TokenStore::State::load_split(int split, const SafetensorsReader& reader) {
  const fs::path metadata_file = folder / "store.json";
  const std::string name = split_names[split];
  if (!metadata.contains(name) || !metadata[name].is_object()) {
    throw InputError(metadata_file.string() + ": expected the object \"" + name + "\"");
  }
  Columns& split_columns = columns[split];
  split_columns.samples = whole_number(metadata[name], "samples", metadata_file);
  split_columns.supervised_tokens = whole_number(metadata[name], "supervised_tokens", metadata_file);
  const int64_t tokens = whole_number(metadata[name], "tokens", metadata_file);
  split_columns.ids = read_column(reader, name + ".ids", at::kInt, tokens, folder);
  split_columns.supervised = read_column(reader, name + ".supervised", at::kByte, tokens, folder);
  split_columns.offsets =
      read_column(reader, name + ".offsets", at::kLong, split_columns.samples + 1, folder);
  split_columns.category = read_column(reader, name + ".category", at::kInt, split_columns.samples, folder);

  check_ids(split_columns.ids, whole_number(metadata, "vocab_size", metadata_file), folder);
  check_offsets(split_columns.offsets, tokens, name, folder);
  const uint8_t* mask = split_columns.supervised.const_data_ptr<uint8_t>();
  if (std::count(mask, mask + tokens, 1) != split_columns.supervised_tokens ||
      std::count(mask, mask + tokens, 0) != tokens - split_columns.supervised_tokens) {
    fail(folder, "the mask of " + name + " does not have the " +
                     std::to_string(split_columns.supervised_tokens) +
                     " supervised tokens that store.json claims");
  }
  const int32_t* category = split_columns.category.const_data_ptr<int32_t>();
  const auto unknown = [&](int32_t index) {
    return index < 0 || index >= static_cast<int64_t>(categories.size());
  };
  if (std::any_of(category, category + split_columns.samples, unknown)) {
    fail(folder, "a sample of " + name + " has a category that store.json does not list");
  }
}

TokenStore TokenStore::open(const fs::path& folder) {
  auto state = std::make_shared<State>();
  state->folder = folder;
  state->load_metadata();
  const auto reader = SafetensorsReader::open(folder / "tokens.safetensors");
  if (reader.names().size() != 8) {
    fail(folder,
         "tokens.safetensors holds " + std::to_string(reader.names().size()) + " tensors, expected 8");
  }
  // Both files hold the same hash, so a store whose files come from two runs is refused.
  const auto& tensor_metadata = reader.metadata();
  const auto content_hash = tensor_metadata.find("content_hash");
  if (content_hash == tensor_metadata.end() || !state->metadata.contains("content_hash") ||
      state->metadata["content_hash"] != content_hash->second) {
    fail(folder, "store.json and tokens.safetensors do not belong together");
  }
  for (int split = 0; split < 2; ++split) state->load_split(split, reader);
  TokenStore store;
  store.state_ = std::move(state);
  return store;
}

int64_t TokenStore::size(Split split) const {
  return state_->columns[static_cast<int>(split)].samples;
}

int64_t TokenStore::supervised_tokens(Split split) const {
  return state_->columns[static_cast<int>(split)].supervised_tokens;
}

const Json& TokenStore::metadata() const {
  return state_->metadata;
}

TokenStore::Sample TokenStore::sample(Split split, int64_t index) const {
  const State::Columns& columns = state_->columns[static_cast<int>(split)];
  TORCH_CHECK_INDEX(index >= 0 && index < columns.samples, "sample ", index, " of ", columns.samples);
  const int64_t* offsets = columns.offsets.const_data_ptr<int64_t>();
  const size_t begin = offsets[index], length = offsets[index + 1] - offsets[index];
  return {{columns.ids.const_data_ptr<int32_t>() + begin, length},
          {columns.supervised.const_data_ptr<uint8_t>() + begin, length},
          state_->categories[columns.category.const_data_ptr<int32_t>()[index]]};
}

}  // namespace clover::data
