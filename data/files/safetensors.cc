#include "data/files/safetensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/mapped_file.h"
#include "data/files/safetensors_header.h"

namespace clover::data {
namespace {

namespace fs = std::filesystem;

at::ScalarType scalar_type(std::string_view dtype) {
  if (dtype == "BOOL") return at::kBool;
  if (dtype == "U8") return at::kByte;
  if (dtype == "I8") return at::kChar;
  if (dtype == "I16") return at::kShort;
  if (dtype == "I32") return at::kInt;
  if (dtype == "I64") return at::kLong;
  if (dtype == "F16") return at::kHalf;
  if (dtype == "BF16") return at::kBFloat16;
  if (dtype == "F32") return at::kFloat;
  if (dtype == "F64") return at::kDouble;
  if (dtype == "F8_E5M2") return at::kFloat8_e5m2;
  if (dtype == "F8_E4M3") return at::kFloat8_e4m3fn;
  return at::ScalarType::Undefined;
}

struct StoredTensor {
  std::shared_ptr<MappedFile> file;
  fs::path path;  // for error messages
  HeaderEntry entry;
  TensorInfo info;
};

}  // namespace

struct SafetensorsReader::State {
  fs::path opened_path;  // a file or a folder, for error messages
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> metadata;

  /// Adds every tensor of one file.  InputError for a tensor that another file has, too.
  void add_file(const fs::path& path) {
    auto file = std::make_shared<MappedFile>(path);
    SafetensorsHeader header = parse_safetensors_header(file->view(), path.string());
    for (auto& [name, entry] : header.entries) {
      const TensorInfo info{scalar_type(entry.dtype), entry.shape};
      const auto [other, added] = tensors.emplace(name, StoredTensor{file, path, std::move(entry), info});
      if (!added) {
        throw InputError(path.string() + ": tensor '" + name + "' is also in " + other->second.path.string() +
                         "; a tensor must be in one shard");
      }
    }
    metadata.merge(header.metadata);  // keeps the values of the shards before
  }

  /// Adds every tensor of all shards that the index names.
  void add_shards(const fs::path& index_path);

  const StoredTensor& find(const std::string& name) const {
    const auto found = tensors.find(name);
    if (found == tensors.end())
      throw InputError(opened_path.string() + ": there is no tensor '" + name + "'");
    return found->second;
  }
};

namespace {

/// The "weight_map" of an index: tensor name to shard.  Each shard is a plain file name in the index's
/// folder.
std::map<std::string, std::string> read_weight_map(const fs::path& index_path) {
  const std::string where = index_path.string();
  const nlohmann::json index = parse_json(read_file(index_path, safetensors_header_limit), where);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    throw InputError(where + ": expected an object with the object \"weight_map\"");
  }
  std::map<std::string, std::string> weight_map;
  for (const auto& [name, shard] : index["weight_map"].items()) {
    if (!shard.is_string()) {
      throw InputError(where + ": weight_map: '" + name + "': expected a file name, found " +
                       shard.type_name());
    }
    const auto& file = shard.get_ref<const std::string&>();
    if (file.empty() || file == "." || file == ".." ||
        file.find_first_of(std::string_view("/\\\0", 3)) != file.npos) {
      throw InputError(where + ": weight_map: '" + name +
                       "': expected the plain name of a file beside the index, found '" + file + "'");
    }
    weight_map[name] = file;
  }
  return weight_map;
}

}  // namespace

void SafetensorsReader::State::add_shards(const fs::path& index_path) {
  const std::map<std::string, std::string> weight_map = read_weight_map(index_path);
  std::set<std::string> shards;  // file names
  for (const auto& [name, file] : weight_map) shards.insert(file);
  for (const std::string& file : shards) add_file(index_path.parent_path() / file);
  for (const auto& [name, file] : weight_map) {
    const auto found = tensors.find(name);
    if (found == tensors.end() || found->second.path.filename() != file) {
      throw InputError(index_path.string() + ": weight_map puts tensor '" + name + "' in " + file + ", but " +
                       (found == tensors.end() ? "no shard has it"
                                               : "it is in " + found->second.path.filename().string()));
    }
  }
  for (const auto& [name, stored] : tensors) {
    if (!weight_map.count(name)) {
      throw InputError(stored.path.string() + ": tensor '" + name + "' is not in the weight_map of " +
                       index_path.filename().string());
    }
  }
}

SafetensorsReader SafetensorsReader::open(const fs::path& file_or_folder) {
  auto state = std::make_shared<State>();
  state->opened_path = file_or_folder;
  std::error_code ignored;
  if (fs::is_directory(file_or_folder, ignored)) {
    const fs::path single = file_or_folder / "model.safetensors";
    const fs::path index = file_or_folder / "model.safetensors.index.json";
    if (fs::exists(single, ignored)) {
      state->add_file(single);
    } else if (fs::exists(index, ignored)) {
      state->add_shards(index);
    } else {
      throw InputError(file_or_folder.string() +
                       ": expected model.safetensors or model.safetensors.index.json, found neither");
    }
  } else {
    state->add_file(file_or_folder);
  }
  SafetensorsReader reader;
  reader.state_ = std::move(state);
  return reader;
}

std::vector<std::string> SafetensorsReader::names() const {
  std::vector<std::string> names;
  for (const auto& [name, stored] : state_->tensors) names.push_back(name);
  return names;
}

bool SafetensorsReader::contains(const std::string& name) const {
  return state_->tensors.count(name) > 0;
}

const TensorInfo& SafetensorsReader::info(const std::string& name) const {
  return state_->find(name).info;
}

const std::map<std::string, std::string>& SafetensorsReader::metadata() const {
  return state_->metadata;
}

at::ScalarType SafetensorsReader::first_float_dtype() const {
  const StoredTensor* first = nullptr;
  for (const auto& [name, stored] : state_->tensors) {
    const bool is_usable = at::isFloatingType(stored.info.dtype) &&
                           c10::elementSize(stored.info.dtype) > 1;  // PyTorch hardly computes in FP8
    if (is_usable && (first == nullptr || stored.path < first->path)) first = &stored;
  }
  return first == nullptr ? at::kBFloat16 : first->info.dtype;
}

at::Tensor SafetensorsReader::read(const std::string& name) const {
  const StoredTensor& stored = state_->find(name);
  const at::ScalarType dtype = stored.info.dtype;
  const std::string where = stored.path.string() + ": tensor '" + name + "'";
  if (dtype == at::ScalarType::Undefined) {
    throw InputError(where + " has dtype " + stored.entry.dtype +
                     ", which is not supported; convert it to a float type");
  }
  const at::TensorOptions options = at::TensorOptions().dtype(dtype);
  const size_t bytes = stored.entry.end - stored.entry.begin;
  if (bytes == 0) return at::empty(stored.info.shape, options);
  char* begin = stored.file->bytes() + stored.entry.begin;
  if (dtype == at::kBool &&
      std::any_of(begin, begin + bytes, [](char value) { return value != 0 && value != 1; })) {
    throw InputError(where + " is BOOL but holds bytes other than 0 and 1");
  }
  if (reinterpret_cast<uintptr_t>(begin) % c10::elementSize(dtype) != 0) {
    at::Tensor copy = at::empty(stored.info.shape, options);
    std::memcpy(copy.mutable_data_ptr(), begin, bytes);
    return copy;
  }
  return at::from_blob(
      begin, stored.info.shape, [file = stored.file](void*) {}, options);
}

at::Tensor SafetensorsReader::read(const std::string& name, at::IntArrayRef expected_shape) const {
  const StoredTensor& stored = state_->find(name);
  if (at::IntArrayRef(stored.info.shape) != expected_shape) {
    const auto text = [](at::IntArrayRef shape) {
      std::string list;
      for (const int64_t dimension : shape) list += (list.empty() ? "" : ", ") + std::to_string(dimension);
      return "[" + list + "]";
    };
    throw InputError(stored.path.string() + ": tensor '" + name + "' has shape " + text(stored.info.shape) +
                     ", expected " + text(expected_shape));
  }
  return read(name);
}

}  // namespace clover::data
