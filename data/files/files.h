#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>
#include <string_view>

namespace clover::data {

/// The whole of a regular file, or of an open file's number (/dev/fd/3).  InputError when it is neither,
/// cannot be read or is larger than `limit` bytes.
std::string read_file(const std::filesystem::path& file, size_t limit = size_t{1} << 30);

/// Parses a JSON file of at most 128 MB; InputError names the file and the byte where it breaks, duplicate
/// keys and nesting deeper than 64.
nlohmann::json read_json(const std::filesystem::path& file);

/// Parses one JSON text with the same strictness; `where` begins the message.
nlohmann::json parse_json(std::string_view text, const std::string& where);

/// InputError when `file` could not be written now, found before the work whose result it is to hold.
void check_can_write(const std::filesystem::path& file);

/// Whether both name one file, however it is spelled and be it there yet or not.
bool same_file(const std::filesystem::path& one, const std::filesystem::path& other);

/// What a link leads to, be it there yet or not: that is replaced, not the link.
std::filesystem::path behind_links(const std::filesystem::path& file);

/// Gives what is about to take the place of `file` its permissions, where there is one.
void keep_permissions(const std::filesystem::path& file, const std::filesystem::path& successor);

/// Removes files of `folder` that were about to take another's place when their process was killed; nobody
/// may be writing there.
void remove_temporaries(const std::filesystem::path& folder);

/// Writes a file so that it is either whole or untouched: temporary file beside it, fsync, rename.  A link
/// and the permissions of what was there stay.
void write_file_atomically(const std::filesystem::path& file, std::string_view bytes);

}  // namespace clover::data
