//! The codes that upstreams put into their errors, one table a dialect, and what each means here.
//!
//! A code is looked up in lower case. Dotted codes are families: `invalidparameter.size` is found as
//! `invalidparameter` where it has no line of its own.

use forebay_engine::Class::{
    self, Auth, Misconfigured, Policy, Quota, RateLimited, Request, Unknown, Upstream,
};

type Table = &'static [(Class, &'static [&'static str])];

/// What a code says by itself, whoever sends it.
pub(super) fn exact(code: &str) -> Option<Class> {
    EXACT.iter().find_map(|table| family(table, code))
}

/// What a word says that some upstreams put beside nearly every refusal: only worth something where
/// the status says no more.
pub(super) fn broad(code: &str) -> Option<Class> {
    family(BROAD, code)
}

/// A code that means that the request is too long for this model.
pub(super) fn is_context_length(code: &str) -> bool {
    ["context_length_exceeded", "outofcontexterror", "exceed_context_size_error"].contains(&code)
}

/// A code that means that all is well.
pub(super) fn is_success(code: &str) -> bool {
    // Volcengine's speech answers 3000 and 20000000, its pictures 10000, SiliconFlow 20000, many others 0.
    const WORDS: [&str; 9] = ["0", "200", "3000", "10000", "20000", "20000000", "success", "ok", "succeeded"];
    WORDS.contains(&code)
}

fn family(table: Table, code: &str) -> Option<Class> {
    let mut code = code;
    loop {
        let found = table.iter().find(|(_, codes)| codes.contains(&code));
        if let Some((class, _)) = found {
            return Some(*class);
        }
        code = code.rsplit_once('.')?.0;
    }
}

const EXACT: [Table; 7] = [OPENAI, ANTHROPIC, GOOGLE, ARK, SPEECH, DASHSCOPE, SILICONFLOW];

/// OpenAI's guide to error codes, and what Azure, DeepSeek, Moonshot and vLLM add in its shape.
const OPENAI: Table = &[
    (
        RateLimited,
        &[
            "rate_limit_exceeded",
            "rate_limit_reached",
            "rate_limit_reached_error",
            "too_many_requests",
            "requests",
            "tokens",
            "concurrency_limit_exceeded",
        ],
    ),
    (
        Auth,
        &[
            "invalid_api_key",
            "invalid_authentication",
            "invalid_authentication_error",
            "incorrect_api_key_error",
            "account_deactivated",
            "missing_scope",
            "ip_not_authorized",
            "unsupported_country_region_territory",
        ],
    ),
    (
        Quota,
        &[
            "insufficient_quota",
            "billing_hard_limit_reached",
            "billing_not_active",
            "insufficient_balance",
            "insufficient_credits",
            "exceeded_current_quota_error",
            "access_terminated",
        ],
    ),
    (
        Misconfigured,
        &[
            "model_not_found",
            "model_not_available",
            "model_access_denied",
            "model_not_supported",
            "resource_not_found_error",
            "deployment_not_found",
            "deploymentnotfound",
        ],
    ),
    (Upstream, &["server_overloaded", "engine_overloaded", "engine_overloaded_error", "service_unavailable"]),
    (
        Request,
        &[
            "context_length_exceeded",
            "exceed_context_size_error",
            "string_above_max_length",
            "unsupported_parameter",
            "unknown_parameter",
            "unsupported_value",
            "missing_required_parameter",
            "invalid_value",
            "invalid_type",
            "invalid_image",
            "invalid_image_url",
            "invalid_prompt",
            "previous_response_not_found",
        ],
    ),
    (
        Policy,
        &[
            "content_policy_violation",
            "content_filter",
            "moderation_blocked",
            "responsibleaipolicyviolation",
            "image_content_policy_violation",
        ],
    ),
];

/// Anthropic's page of errors: the type says it all, there is no code.
const ANTHROPIC: Table = &[
    (RateLimited, &["rate_limit_error"]),
    (Auth, &["authentication_error"]),
    (Quota, &["billing_error", "enforced_spend_limit_reached"]),
    (Misconfigured, &["not_found_error"]),
    (Upstream, &["overloaded_error"]),
    (Unknown, &["timeout_error"]),
    (Request, &["request_too_large"]),
];

/// Google's `google.rpc.Code` names and the reasons of its `ErrorInfo`; block reasons of Gemini.
const GOOGLE: Table = &[
    (RateLimited, &["resource_exhausted", "rate_limit_exceeded"]),
    (
        Auth,
        &[
            "api_key_invalid",
            "api_key_service_blocked",
            "api_key_http_referrer_blocked",
            "api_key_ip_address_blocked",
            "access_token_expired",
            "credentials_missing",
            "consumer_suspended",
            "consumer_invalid",
            "unauthenticated",
        ],
    ),
    (Quota, &["billing_disabled"]),
    (Misconfigured, &["service_disabled"]),
    (Upstream, &["unavailable"]),
    (Unknown, &["deadline_exceeded"]),
    (Request, &["out_of_range"]),
    (Policy, &["safety", "prohibited_content", "blocklist", "image_safety", "recitation", "spii"]),
];

/// Volcengine Ark's (and ModelArk's) table of error codes.
const ARK: Table = &[
    (
        RateLimited,
        &[
            "ratelimitexceeded",
            "modelaccountrpmratelimitexceeded",
            "modelaccounttpmratelimitexceeded",
            "modelaccountipmratelimitexceeded",
            "apiaccountrpmratelimitexceeded",
            "accountratelimitexceeded",
            "inflightbatchsizeexceeded",
            // Of queued tasks; the text tells the used-up trial and the used-up plan from it.
            "quotaexceeded",
        ],
    ),
    (Auth, &["authenticationerror", "invalidaccountstatus"]),
    (
        Quota,
        &[
            "accountoverdueerror",
            "operationdenied.serviceoverdue",
            "setlimitexceeded",
            "invalidsubscription",
            "insufficientaccountbalance",
        ],
    ),
    (
        Misconfigured,
        &[
            "modelnotopen",
            "invalidendpointormodel",
            "invalidendpoint",
            "unsupportedmodel",
            "modelaccessdenied",
            "operationdenied.servicenotopen",
            "operationdenied.permissiondenied",
            "accessdenied",
            "notfound",
        ],
    ),
    // A burst says nothing of the account's limits: the model grows slower than the traffic.
    (Upstream, &["serveroverloaded", "requestbursttoofast", "requestburst_too_fast", "internalserviceerror"]),
    (
        Request,
        &[
            "outofcontexterror",
            "missingparameter",
            "invalidparameter",
            "invalidargumenterror",
            "invalidimageurl",
            "operationdenied",
        ],
    ),
    (
        Policy,
        &[
            "sensitivecontentdetected",
            "inputtextsensitivecontentdetected",
            "inputimagesensitivecontentdetected",
            "inputvideosensitivecontentdetected",
            "inputaudiosensitivecontentdetected",
            "outputtextsensitivecontentdetected",
            "outputimagesensitivecontentdetected",
            "outputvideosensitivecontentdetected",
            "outputaudiosensitivecontentdetected",
            "inputtextriskdetection",
            "inputimageriskdetection",
            "outputtextriskdetection",
            "outputimageriskdetection",
        ],
    ),
];

/// Volcengine's speech synthesis, both generations of its API: numbers, 3000 and 20000000 being success.
const SPEECH: Table = &[
    (RateLimited, &["3003", "45000292"]),
    (Upstream, &["3005", "3030", "3031", "3032", "3040", "55000000"]),
    // A voice that does not exist (3050) is the caller's choice like any other parameter.
    (Request, &["3001", "3006", "3010", "3011", "3050", "40402003", "45000000", "45000001"]),
    (Policy, &["40000022"]),
];

/// Alibaba's Model Studio (DashScope), in its own shape and in OpenAI's.
const DASHSCOPE: Table = &[
    // Its AllocationQuota is the tokens a minute, for all that it speaks of quotas.
    (RateLimited, &["throttling", "limitrequests", "limit_requests"]),
    (Auth, &["invalidapikey", "not authorized", "invalid access token or token expired"]),
    (
        Quota,
        &[
            "arrearage",
            "allocationquota",
            "prepaidbilloverdue",
            "postpaidbilloverdue",
            "commoditynotpurchased",
        ],
    ),
    (
        Misconfigured,
        &[
            "modelnotfound",
            "model_not_supported",
            "accessdenied.unpurchased",
            "model.accessdenied",
            "app.accessdenied",
            "workspace.accessdenied",
            "access_denied",
            "workspacenotfound",
        ],
    ),
    (
        Upstream,
        &[
            "throttling.burstrate",
            "limit_burst_rate",
            "internalerror",
            "systemerror",
            "modelservicefailed",
            "modelservingerror",
            "modelunavailable",
            "requesttimeout",
            "responsetimeout",
        ],
    ),
    (
        Request,
        &[
            "badrequest",
            "invalidurl",
            "unsupportedoperation",
            "invalidinputlength",
            "internalerror.algo.invalidparameter",
        ],
    ),
    (
        Policy,
        &[
            "datainspectionfailed",
            "data_inspection_failed",
            "ipinfringementsuspect",
            "customroleblocked",
            "faqruleblocked",
        ],
    ),
];

/// SiliconFlow's numbers, as its documentation and its users show them.
const SILICONFLOW: Table = &[
    (RateLimited, &["50602", "50603", "50604"]),
    (Quota, &["30001"]),
    (Misconfigured, &["20012", "30003"]),
    (Upstream, &["50501", "50505", "50507", "50508", "50609"]),
    (Request, &["20015", "20024"]),
];

/// Words that come with refusals of many kinds.
const BROAD: Table = &[
    (
        Request,
        &[
            "invalid_request_error",
            "invalid_request",
            "invalid_argument",
            "invalid_parameter_error",
            "badrequesterror",
            "bad_request",
            "image_generation_user_error",
        ],
    ),
    (Auth, &["permission_error", "permission_denied", "forbidden", "unauthorized", "request_forbidden"]),
    // Google's word for a free tier that a region does not have: it wants billing.
    (Quota, &["failed_precondition"]),
    (Misconfigured, &["not_found"]),
    (
        Upstream,
        &[
            "api_error",
            "server_error",
            "internal_error",
            "internal_server_error",
            "internal",
            "aborted",
            "unknown",
        ],
    ),
];
