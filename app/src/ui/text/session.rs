//! Texts of the login page.

pub(crate) struct Session {
    pub(crate) title: &'static str,
    pub(crate) lead: &'static str,
    pub(crate) name: &'static str,
    pub(crate) password: &'static str,
    pub(crate) sign_in: &'static str,
    pub(crate) signing_in: &'static str,
    pub(crate) no_operator: &'static str,
}

pub(crate) const ENGLISH: Session = Session {
    title: "Sign in",
    lead: "Model-pool gateway, operators' console",
    name: "Name",
    password: "Password",
    sign_in: "Sign in",
    signing_in: "Signing in…",
    no_operator: "No operator yet? On the server, run: forebay admin create NAME",
};

pub(crate) const CHINESE: Session = Session {
    title: "登录",
    lead: "模型池网关 · 运维控制台",
    name: "用户名",
    password: "密码",
    sign_in: "登录",
    signing_in: "登录中…",
    no_operator: "还没有用户？请在服务器上运行：forebay admin create NAME",
};
