#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>
#include <string_view>

namespace clover::data {

/// All bytes of a regular file or of an open file descriptor (/dev/fd/3).  InputError when it is neither,
/// cannot be read, or is larger than `limit` bytes.
std::string read_file(const std::filesystem::path& file, size_t limit = size_t{1} << 30);

/// Parses a JSON file of at most 128 MiB.  InputError names the file and the byte of a syntax error;
/// duplicate keys and nesting deeper than 64 are errors, too.
nlohmann::json read_json(const std::filesystem::path& file);

/// Parses a JSON text as strictly as `read_json`.  Error messages begin with `where`.
nlohmann::json parse_json(std::string_view text, const std::string& where);

/// InputError when `file` cannot be written.  Called before long work whose result goes there.
void check_writable(const std::filesystem::path& file);

/// Whether both paths name the same file, which need not exist yet.
bool same_file(const std::filesystem::path& a, const std::filesystem::path& b);

/// The path that `file` leads to when symbolic links are followed; it need not exist.  A file is replaced at
/// that path, so that the link stays.  A loop of links gives `file` itself.
std::filesystem::path resolve_links(const std::filesystem::path& file);

/// Gives `successor`, which is about to replace `file`, the permissions of `file`, if `file` exists.
void copy_permissions(const std::filesystem::path& file, const std::filesystem::path& successor);

/// Removes the temporary files that killed calls of `write_file_atomically` left in `folder`.  No other
/// process may be writing there.
void remove_temporary_files(const std::filesystem::path& folder);

/// Writes a file through a temporary file in the same folder, fsync and rename.  A reader, also after a
/// crash, finds either the old file or the complete new one.  A symbolic link stays a link, and the
/// permissions of an old file are kept.
void write_file_atomically(const std::filesystem::path& file, std::string_view bytes);

}  // namespace clover::data
