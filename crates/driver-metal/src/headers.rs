//! MSL headers that are put into sources for Metal's compiler: commands in memory, launches that kernels enqueue, and groups of threads.

/// The structs of both.
pub(crate) const RECORDS: &str = include_str!("headers/records.h");

/// Metal's names for indirect command buffers, which stand for commands in memory.
pub(crate) const COMMANDS: &str = include_str!("headers/commands.h");

/// Groups of threads as objects, of `<elinvar/grid>`.
pub(crate) const GROUPS: &str = include_str!("headers/grid.h");

/// `<elinvar/launch>`.
pub(crate) const LAUNCH: &str = include_str!("headers/launch.h");

/// The names that [`COMMANDS`] replaces.
const NAMES: [&str; 3] = ["command_buffer", "compute_command", "compute_pipeline_state"];

/// The functions that make groups of threads.
pub(crate) const MAKE_GROUPS: [&str; 3] = ["this_threadgroup", "this_simdgroup", "this_tile"];

/// Whether a text has one of Metal's names for indirect command buffers.
pub(crate) fn has_commands(text: &str) -> bool {
    has_any(text, &NAMES)
}

/// Whether a text has groups of threads as objects.
pub(crate) fn has_groups(text: &str) -> bool {
    has_any(text, &MAKE_GROUPS)
}

fn has_any(text: &str, names: &[&str]) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    names.iter().any(|name| {
        text.match_indices(name).any(|(at, _)| {
            let (before, behind) = (&text[..at], &text[at + name.len()..]);
            !before.ends_with(is_part) && !behind.starts_with(is_part)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole_words() {
        assert!(has_commands("constant command_buffer& c") && has_commands("compute_command c(b, 1);"));
        assert!(!has_commands("my_command_buffer") && !has_commands("command_buffers"));
    }
}
