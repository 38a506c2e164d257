-- Providers that are known from the start; without an account and a model none of them is ever called.

INSERT INTO ai_providers (id, key, name, protocol, base_url, tier) VALUES
    ('builtin-openai', 'openai', 'OpenAI', 'openai', 'https://api.openai.com/v1', 'direct'),
    ('builtin-volcengine', 'volcengine', 'Volcengine Ark', 'volcengine_ark', 'https://ark.cn-beijing.volces.com/api/v3', 'direct'),
    ('builtin-dashscope', 'dashscope', 'DashScope', 'dashscope', 'https://dashscope.aliyuncs.com/compatible-mode/v1', 'direct'),
    ('builtin-siliconflow', 'siliconflow', 'SiliconFlow', 'openai', 'https://api.siliconflow.cn/v1', 'preferred')
ON CONFLICT (key) DO NOTHING;
