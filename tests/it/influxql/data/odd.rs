//! Unusual measurements: quoted names, edge times, extreme numbers, sparse fields.

use super::{BASE, DAY, HOUR, MINUTE, Readings, SECOND, chaos, eighths};

impl Readings {
    pub(super) fn odd(&mut self) {
        self.edges();
        self.numbers();
        self.words();
        self.sparse();
        self.missing_tags();
        self.few();
        self.past();
        self.names();
    }

    /// On and next to the borders of hours and of shorter windows.
    fn edges(&mut self) {
        let borders = [0, MINUTE, 5 * MINUTE, 10 * MINUTE, HOUR, 2 * HOUR, DAY];
        for (number, border) in (0..).zip(borders) {
            for beside in [-1, 0, 1] {
                let line = format!("edges,at=border v={},n={}i", number * 10 + beside, border / SECOND + beside);
                self.add(number + beside, format!("{line} {}", BASE + border + beside));
            }
        }
    }

    /// Extreme integers and floats in several notations.
    fn numbers(&mut self) {
        let integers = [i64::MAX, i64::MIN, 0, -1, 9_007_199_254_740_993, -9_007_199_254_740_993, 1_000_000];
        for (number, integer) in (0..).zip(integers) {
            self.add(number, format!("numbers,kind=integer i={integer}i {}", BASE + number * MINUTE));
        }
        let floats = "1e300 -1e300 1e-300 0.1 0.2 0.3 123456789.123456789 1e21 1e20 1e-7 0.000001 -0.0 100 1e308 \
                      5e-324 -2.5 1234567890123456789";
        for (number, float) in (0..).zip(floats.split(' ')) {
            self.add(number, format!("numbers,kind=float f={float} {}", BASE + number * MINUTE));
        }
    }

    /// Strings only, and booleans only.
    fn words(&mut self) {
        let messages = [
            r"plain",
            r#"a \"quoted\" word"#,
            r"back\\slash",
            "two\nlines",
            "tab\there",
            "naïve ☃ 𝄞",
            "<b>&amp;</b>",
            "",
            "it's",
            "a,b=c d",
            "plain",
            "PLAIN",
            "zulu",
            "42",
            "true",
        ];
        for (number, message) in (0..).zip(messages.iter().cycle().take(30)) {
            let level = if number % 4 == 0 { "error" } else { "info" };
            let line = format!("events,level={level} message=\"{message}\",code=\"E{}\"", number % 5);
            self.add(number, format!("{line} {}", BASE + number * 90 * SECOND));
        }
        for number in 0..40 {
            for name in ["lamp", "pump"] {
                let on = chaos(number * 3 + i64::from(name == "pump")) % 2 == 0;
                self.add(number, format!("switch,name={name} on={on} {}", BASE + number * 3 * MINUTE));
            }
        }
    }

    /// Sparse fields, and one with a single value.
    fn sparse(&mut self) {
        for number in 0..60 {
            let mut fields = Vec::new();
            for (key, every) in [("a", 2), ("b", 3), ("c", 7)] {
                if number % every == 0 {
                    fields.push(format!("{key}={}", eighths(number * every, 400)));
                }
            }
            if number % 5 == 1 {
                fields.push(format!("i={number}i"));
            }
            if number == 31 {
                fields.push("once=\"here\"".to_owned());
            }
            if !fields.is_empty() {
                let shelf = if number < 40 { "low" } else { "high" };
                self.add(number, format!("sparse,shelf={shelf} {} {}", fields.join(","), BASE + number * MINUTE));
            }
        }
    }

    /// Series with each of two tags, with both, and with none.
    fn missing_tags(&mut self) {
        for number in 0..12 {
            for (which, tags) in (0..).zip(["", ",a=1", ",b=1", ",a=1,b=1", ",a=2,b=1", ",b=2"]) {
                let line = format!("loose{tags} v={}", number * 10 + which);
                self.add(number + which, format!("{line} {}", BASE + number * 5 * MINUTE + which * SECOND));
            }
        }
    }

    /// One reading, and two.
    fn few(&mut self) {
        self.first.push(format!("single v=4.5,i=4i,s=\"one\",b=true {}", BASE + 90 * SECOND));
        self.first.push(format!("couple v=1,i=7i {}", BASE + 90 * SECOND));
        self.second.push(format!("couple v=2.5,i=8i {}", BASE + 150 * SECOND));
    }

    /// Before 1970, at its start, and in between.
    fn past(&mut self) {
        let times = [-157_766_400 * SECOND, -DAY, -HOUR - 1, -HOUR, -SECOND, -1, 0, 1, SECOND, HOUR, DAY];
        for (number, time) in (0..).zip(times) {
            self.add(number, format!("past,era=old v={number},n={}i {time}", -number));
        }
    }

    /// Names with every allowed character.
    fn names(&mut self) {
        let measurements = [
            r"my\ measurement",
            r#"quo"te"#,
            "dot.ted.name",
            "naïve☃",
            r"com\,ma",
            "eq=ual",
            "sl/ash",
            "sel'ect",
            "select",
            "123go",
            "UPPER",
            "upper",
            r"back\slash",
            "_under",
            "mean(v)",
            "a-b",
        ];
        for (number, name) in (0..).zip(measurements) {
            let time = BASE + number * MINUTE;
            self.add(number, format!("{name},part=names v={number},n={number}i {time}"));
            self.add(number + 1, format!("{name},part=names v={} {}", number + 1, time + 30 * SECOND));
        }
        let tags = [
            r"my\ tag=a\ b",
            r#"quo"te="x""#,
            "dot.ted=1.5",
            "ключ=значение",
            r"com\,ma=a\,b",
            r"eq\=ual=a\=b",
            "sl/ash=/a/",
            "apo'strophe='s",
            "from=where",
            "Upper=UP",
            "upper=low",
            r"back\slash=c:\dir",
            "number=42",
        ];
        for (number, tag) in (0..).zip(tags) {
            self.add(number, format!("keys,{tag} v={number} {}", BASE + number * MINUTE));
        }
        let fields = [
            r"my\ field=1",
            r#"quo"te=2"#,
            "dot.ted=3",
            "поле=4",
            r"com\,ma=5",
            r"eq\=ual=6",
            "sl/ash=7",
            "apo'strophe=8",
            "select=9",
            "Upper=10",
            "upper=11",
            r"back\slash=12",
            "1st=13",
            "mean=14",
            "fill=15",
        ];
        for (number, field) in (0..).zip(fields) {
            self.add(number, format!("keys,kind=fields {field} {}", BASE + HOUR + number * MINUTE));
        }
    }
}
