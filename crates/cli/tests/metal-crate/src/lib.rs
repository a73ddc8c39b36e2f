#![cfg(target_os = "macos")]
