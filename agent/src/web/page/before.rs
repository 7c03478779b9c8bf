//! What the box's programs warned of before it was started this time.

use std::fmt::{self, Write as _};

use super::Text;

pub fn write(out: &mut String, lines: &[String]) -> fmt::Result {
    if lines.is_empty() {
        return Ok(());
    }
    out.write_str("<details class=\"card\"><summary>Warnings before the last start</summary>\n<pre style=\"overflow-x:auto\">")?;
    lines
        .iter()
        .try_for_each(|line| writeln!(out, "{}", Text(line)))?;
    out.write_str("</pre></details>\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_log_line_is_text_and_none_is_no_card() {
        let mut out = String::new();
        write(&mut out, &[]).unwrap();
        assert_eq!(out, "");
        write(&mut out, &["<b>etcd</b> panicked".to_owned()]).unwrap();
        assert!(
            out.contains("&lt;b>etcd&lt;/b>") || out.contains("&lt;b&gt;etcd"),
            "{out}"
        );
    }
}
