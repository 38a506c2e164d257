// Where the server is and how to get in; `cargo xtask test` sets these from `forebay demo --json`.

function required(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set`);
  return value;
}

export const baseUrl = required("FOREBAY_BASE_URL").replace(/\/$/, "");
export const admin = {
  name: required("FOREBAY_ADMIN_NAME"),
  password: required("FOREBAY_ADMIN_PASSWORD"),
};

/** Folder for screenshots; none are taken without it. */
export const screenshots = process.env.FOREBAY_SCREENSHOTS;

export const callerToken = () => required("FOREBAY_CALLER_TOKEN");
export const simulatorUrl = () => required("FOREBAY_SIMULATOR_URL").replace(/\/$/, "");
