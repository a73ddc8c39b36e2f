//! MSL headers that are put into sources for Metal's compiler: commands in memory, and launches that kernels enqueue.

/// The structs of both.
pub(crate) const RECORDS: &str = include_str!("headers/records.h");

/// Metal's names for indirect command buffers, which stand for commands in memory.
pub(crate) const COMMANDS: &str = include_str!("headers/commands.h");

/// `<elinvar/launch>`.
pub(crate) const LAUNCH: &str = include_str!("headers/launch.h");

/// The names that [`COMMANDS`] replaces.
const NAMES: [&str; 3] = ["command_buffer", "compute_command", "compute_pipeline_state"];

/// Whether a text has one of Metal's names for indirect command buffers.
pub(crate) fn has_commands(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    NAMES.iter().any(|name| {
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
