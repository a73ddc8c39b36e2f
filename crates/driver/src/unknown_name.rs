//! Messages about names that do not exist, with the names that do: all if they are few, and otherwise the most similar ones.

/// Names that a message lists.
const LISTED: usize = 5;

/// "it has `a`, `b`": the known names, or the most similar ones to `name` and how many there are. `what` is their kind, in the plural.
///
/// Names that contain `name` or are contained in it come first, then those of the smallest edit distance (Damerau-Levenshtein with adjacent
/// transpositions); ties are in the given order.
pub fn similar_names<'a>(what: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    if known.is_empty() {
        return "it has none".to_owned();
    }
    if known.len() <= LISTED {
        return format!("it has {}", listed(&known));
    }
    let contains = |other: &str| !name.is_empty() && (other.contains(name) || name.contains(other));
    let mut ranked: Vec<(bool, usize, &str)> =
        known.iter().map(|other| (!contains(other), strsim::osa_distance(name, other), *other)).collect();
    ranked.sort_by_key(|(apart, distance, _)| (*apart, *distance));
    let nearest: Vec<&str> = ranked.iter().take(LISTED).map(|(_, _, name)| *name).collect();
    format!("of its {} {what}, the most similar are {}", known.len(), listed(&nearest))
}

fn listed(names: &[&str]) -> String {
    format!("`{}`", names.join("`, `"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn similar(name: &str, known: &[&str]) -> String {
        similar_names("kernels", name, known.iter().copied())
    }

    #[test]
    fn few_names_are_all_listed() {
        assert_eq!(similar("mul", &[]), "it has none");
        assert_eq!(similar("mul", &["add", "sub"]), "it has `add`, `sub`");
        assert_eq!(similar("x", &["e", "d", "c", "b", "a"]), "it has `e`, `d`, `c`, `b`, `a`");
    }

    #[test]
    fn of_many_names_the_most_similar_are_listed() {
        let of = |range: std::ops::Range<usize>| range.map(|k| format!("gemm_{k}")).collect::<Vec<_>>();
        let names = of(0..4000);
        let known: Vec<&str> = names.iter().map(String::as_str).collect();
        let text = similar("gemn_17", &known);
        assert_eq!(
            text,
            "of its 4000 kernels, the most similar are `gemm_17`, `gemm_1`, `gemm_7`, `gemm_10`, `gemm_11`"
        );
        let text = similar("gemm_399", &known);
        assert!(text.contains("are `gemm_399`, `gemm_39`, `gemm_3990`,"), "{text}");
    }

    #[test]
    fn names_with_the_same_part_come_before_shorter_edits() {
        let known =
            ["kernel_abs", "kernel_add_fuse_1", "kernel_add_fuse_2", "kernel_and", "kernel_a", "kernel_or"];
        let text = similar("kernel_add", &known);
        assert!(
            text.contains("are `kernel_a`, `kernel_add_fuse_1`, `kernel_add_fuse_2`, `kernel_"),
            "{text}"
        );
        assert!(similar("", &known).starts_with("of its 6 kernels"));
        assert!(similar("größe_f32", &known).contains("of its 6 kernels"));
    }
}
