//! GRUB's `[ … ]`.

use super::run::Shell;

/// `arguments` as they follow `[` or `test`.
pub fn holds(shell: &Shell, arguments: &[String]) -> bool {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let words = match words.split_last() {
        Some((&"]", rest)) => rest,
        _ => &words,
    };
    words.split(|word| *word == "-o").any(|all| {
        all.split(|word| *word == "-a")
            .all(|one| simple(shell, one))
    })
}

fn simple(shell: &Shell, words: &[&str]) -> bool {
    match words {
        ["!", rest @ ..] => !simple(shell, rest),
        ["-z", text] => text.is_empty(),
        ["-z"] => true,
        ["-e" | "-f" | "-s" | "-d", path] => shell.has(path),
        [left, "=" | "==", right] => left == right,
        [left, "!=", right] => left != right,
        [left, operator, right] => {
            let number = |text: &str| text.trim().parse::<i64>().unwrap_or(0);
            let (left, right) = (number(left), number(right));
            match *operator {
                "-eq" => left == right,
                "-ne" => left != right,
                "-lt" => left < right,
                "-le" => left <= right,
                "-gt" => left > right,
                "-ge" => left >= right,
                _ => false,
            }
        }
        ["-n", text] | [text] => !text.is_empty(),
        _ => false,
    }
}
